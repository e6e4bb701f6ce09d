// SPDX-License-Identifier: Apache-2.0
// The time in ticks of 1.024 microseconds: 32 bits cut from the 48-bit time stamp in nanoseconds, because a register
// lane has no more. The ticks wrap after 73 minutes, so times are compared by the sign of their difference.

// One operation shifts two containers of 32 bits: first the halves of the time stamp, then the bits between.
#define TAKE_HALVES(meta, stamp) meta.now_high = (bit<32>)stamp[47:32]; meta.now_low = stamp[31:0]
#define TAKE_TICKS(meta) funnel_shift_right(meta.now, meta.now_high, meta.now_low, TICK_SHIFT)
