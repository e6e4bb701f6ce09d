// SPDX-License-Identifier: Apache-2.0
// Epochs are compared modulo 256: up to 16 behind is a straggler, anything else that differs is a newer iteration, or a
// job that was started anew and counts from one again.

bool is_newer(in valid_epoch_t stored, in bit<8> epoch) {
    bit<8> ahead = epoch - stored[7:0];
    return stored == 0 || (ahead != 0 && ahead < STRAGGLER_FROM);
}
