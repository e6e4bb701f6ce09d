// SPDX-License-Identifier: Apache-2.0
// Ranking `window` (CASSINI, NSDI '24): the time left in the group's period. Periods follow each other from the first
// packet of the group that the switch sees, or the first after a long silence. The register holds the beginning of the
// running one.

control Window(inout metadata_t meta, in time_us_t now) {
    register<time_us_t>(GROUPS) window_origin_us;
    register<time_us_t>(GROUPS) window_seen_us;

    apply {
        bit<32> index = (bit<32>)meta.group;
        time_us_t period = (time_us_t)meta.period_us;
        time_us_t origin;
        time_us_t seen;
        window_origin_us.read(origin, index);
        window_seen_us.read(seen, index);
        time_us_t into = now - origin;
        if (seen == 0 || now - seen > period << SILENT_SHIFT) {
            into = 0;
        }
        // The remainder by the period, of what is less than 2^(SILENT_SHIFT + 1) periods.
        if (into >= period << 3) { into = into - (period << 3); }
        if (into >= period << 2) { into = into - (period << 2); }
        if (into >= period << 1) { into = into - (period << 1); }
        if (into >= period) { into = into - period; }
        window_origin_us.write(index, now - into);
        window_seen_us.write(index, now);
        meta.level_key = (bit<32>)(period - into);
    }
}
