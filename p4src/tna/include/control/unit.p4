// SPDX-License-Identifier: Apache-2.0
// From ticks to the job's own unit, RANK_UNIT of which are a power of two of ticks: a shift, since nothing in a Tofino
// multiplies by a variable. What a profile needs besides its levels is in table `period`.

control Profile(inout metadata_t meta) {
    // The unit is 2^right ticks; from 16 on 2^-(right - 16).
    @id(0x01000211)
    action set_period(bit<5> right, bit<1> is_relative, bit<32> head_start, bit<32> alone, queue_t lowest) {
        meta.unit = right;
        meta.bridge.is_relative = is_relative;
        meta.handicap = (int<32>)head_start;
        meta.alone = (int<32>)alone;
        meta.bridge.wanted = lowest;
    }

    @id(0x02000211)
    table period {
        key = { meta.profile: exact @name("profile"); }
        actions = { set_period; NoAction; }
        const default_action = NoAction();
        size = PERIOD_TABLE_SIZE;
    }

    apply {
        period.apply();
    }
}

#define RIGHT(n) action right_##n() { meta.raw = meta.raw >> n; }
#define LEFT(n) action left_##n() { meta.raw = meta.raw << n; }

control Unit(inout metadata_t meta) {
    action right_0() { }
    RIGHT(1)
    RIGHT(2)
    RIGHT(3)
    RIGHT(4)
    RIGHT(5)
    RIGHT(6)
    RIGHT(7)
    RIGHT(8)
    RIGHT(9)
    RIGHT(10)
    RIGHT(11)
    RIGHT(12)
    LEFT(1)
    LEFT(2)
    LEFT(3)
    LEFT(4)
    LEFT(5)
    LEFT(6)

    @hidden
    table unit {
        key = { meta.unit: exact; }
        actions = {
            right_0; right_1; right_2; right_3; right_4; right_5; right_6; right_7; right_8; right_9; right_10;
            right_11; right_12; left_1; left_2; left_3; left_4; left_5; left_6;
        }
        const default_action = right_0();
        const entries = {
            1: right_1();
            2: right_2();
            3: right_3();
            4: right_4();
            5: right_5();
            6: right_6();
            7: right_7();
            8: right_8();
            9: right_9();
            10: right_10();
            11: right_11();
            12: right_12();
            17: left_1();
            18: left_2();
            19: left_3();
            20: left_4();
            21: left_5();
            22: left_6();
        }
    }

    apply {
        unit.apply();
    }
}
