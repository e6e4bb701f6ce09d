// SPDX-License-Identifier: Apache-2.0
// The time in ticks of 1.024 microseconds: 32 bits cut from the 48-bit time stamp in nanoseconds, because a register
// lane has no more. The ticks wrap after 73 minutes, so times are compared by the sign of their difference.
//
// Operations work between containers of one width. What changes its width goes through the hash unit, which moves bits
// as they are to any place.

#define TAKE_TICKS(meta, stamp) action take_ticks() { @in_hash { meta.now = stamp[31 + TICK_SHIFT:TICK_SHIFT]; } } \
    action take_pause_ticks() { @in_hash { meta.pause_now = stamp[31 + TICK_SHIFT:TICK_SHIFT]; } }
