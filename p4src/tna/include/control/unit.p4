// SPDX-License-Identifier: Apache-2.0
// From ticks to the job's own unit, RANK_UNIT of which are a power of two of ticks: a shift, since nothing in a Tofino
// multiplies by a variable. What a profile needs besides its levels is in table `period`.

control Profile(inout metadata_t meta) {
    // The unit is 2^right ticks; from 16 on 2^-(right - 16).
    @id(0x01000211)
    action set_period(bit<5> right, bit<1> is_relative, bit<32> head_start, bit<32> alone, queue_t lowest) {
        meta.unit = right;
        meta.bridge.is_relative = is_relative;
        meta.handicap = meta.handicap + head_start;
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

#define RIGHT(field, n) action right_##n() { meta.field = meta.field >> n; }
#define LEFT(field, n) action left_##n() { meta.field = meta.field << n; }

control Unit(inout metadata_t meta) {
    action right_0() { }
    RIGHT(raw, 1)
    RIGHT(raw, 2)
    RIGHT(raw, 3)
    RIGHT(raw, 4)
    RIGHT(raw, 5)
    RIGHT(raw, 6)
    RIGHT(raw, 7)
    RIGHT(raw, 8)
    RIGHT(raw, 9)
    RIGHT(raw, 10)
    RIGHT(raw, 11)
    RIGHT(raw, 12)
    LEFT(raw, 1)
    LEFT(raw, 2)
    LEFT(raw, 3)
    LEFT(raw, 4)
    LEFT(raw, 5)
    LEFT(raw, 6)

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

// The bytes left of a flow become a rank by a shift, too, which `left_shift` names: see LEFT_SHIFT_BIAS.
control Left(inout metadata_t meta) {
    action nothing() {
        meta.left = 0;
    }
    action right_0() { }
    RIGHT(left, 1)
    RIGHT(left, 2)
    RIGHT(left, 3)
    RIGHT(left, 4)
    RIGHT(left, 5)
    RIGHT(left, 6)
    RIGHT(left, 7)
    RIGHT(left, 8)
    RIGHT(left, 9)
    RIGHT(left, 10)
    RIGHT(left, 11)
    RIGHT(left, 12)
    RIGHT(left, 13)
    RIGHT(left, 14)
    RIGHT(left, 15)
    RIGHT(left, 16)
    RIGHT(left, 17)
    RIGHT(left, 18)
    RIGHT(left, 19)
    RIGHT(left, 20)
    RIGHT(left, 21)
    RIGHT(left, 22)
    RIGHT(left, 23)
    RIGHT(left, 24)
    RIGHT(left, 25)
    RIGHT(left, 26)
    LEFT(left, 1)
    LEFT(left, 2)
    LEFT(left, 3)
    LEFT(left, 4)

    @hidden
    table left {
        key = { meta.left_shift: exact; }
        actions = {
            right_0; right_1; right_2; right_3; right_4; right_5; right_6; right_7; right_8; right_9; right_10;
            right_11; right_12; right_13; right_14; right_15; right_16; right_17; right_18; right_19; right_20;
            right_21; right_22; right_23; right_24; right_25; right_26; left_1; left_2; left_3; left_4; nothing;
        }
        const default_action = right_0();
        const entries = {
            0: left_4();
            1: left_3();
            2: left_2();
            3: left_1();
            5: right_1();
            6: right_2();
            7: right_3();
            8: right_4();
            9: right_5();
            10: right_6();
            11: right_7();
            12: right_8();
            13: right_9();
            14: right_10();
            15: right_11();
            16: right_12();
            17: right_13();
            18: right_14();
            19: right_15();
            20: right_16();
            21: right_17();
            22: right_18();
            23: right_19();
            24: right_20();
            25: right_21();
            26: right_22();
            27: right_23();
            28: right_24();
            29: right_25();
            30: right_26();
            31: nothing();
        }
    }

    apply {
        left.apply();
    }
}
