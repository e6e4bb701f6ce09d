// SPDX-License-Identifier: Apache-2.0
// The carrier that makes packets longer: another pipeline with the same tables, to be swapped for the first.

#define MARK
#include "carrier.p4"
