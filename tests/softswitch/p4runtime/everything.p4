// One of each kind of entity that P4Runtime knows, for the tests of the switch's P4Runtime server.
// everything.json and everything.p4info.txtpb are what p4c makes of it:
//   p4c-bm2-ss --std p4-16 --arch v1model -o everything.json --p4runtime-files everything.p4info.txtpb everything.p4
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> unused;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
}

struct station_t {
    bit<48> address;
    bit<9> port;
    bool special;
}

struct metadata_t {
    bit<8> mark;
    bit<2> color;
    bit<1> special;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) special_types;

    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            special_types: parse_special;
            default: accept;
        }
    }
    state parse_special {
        meta.special = 1;
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(16, CounterType.packets_and_bytes) port_counter;
    direct_counter(CounterType.packets_and_bytes) exact_counter;
    register<bit<32>>(8) last_type;
    meter(4, MeterType.bytes) port_meter;
    direct_meter<bit<2>>(MeterType.packets) entry_meter;
    action_selector(HashAlgorithm.crc16, 32w64, 32w10) chooser;
    action_profile(32w16) members;

    action forward(bit<9> port, bit<8> mark) {
        standard.egress_spec = port;
        meta.mark = mark;
    }
    action drop() {
        mark_to_drop(standard);
    }
    action flood(bit<16> group) {
        standard.mcast_grp = group;
    }
    action learn() {
        digest<station_t>(1, { hdr.ethernet.src, standard.ingress_port, meta.special == 1 });
    }
    action measure() {
        entry_meter.read(meta.color);
    }

    table exact_table {
        key = { hdr.ethernet.dst: exact; standard.ingress_port: exact; }
        actions = { forward; @tableonly flood; drop; @defaultonly NoAction; }
        default_action = drop();
        counters = exact_counter;
        size = 4096;
    }
    table lpm_table {
        key = { hdr.ethernet.src: lpm; }
        actions = { flood; NoAction; }
        size = 16;
    }
    table ternary_table {
        key = { hdr.ethernet.src: ternary @name("source"); hdr.ethernet.type: range; standard.ingress_port: optional; }
        actions = { learn; NoAction; }
        const default_action = NoAction;
    }
    table meter_table {
        key = { hdr.ethernet.dst: exact; }
        actions = { measure; NoAction; }
        meters = entry_meter;
    }
    table const_table {
        key = { hdr.ethernet.type: exact; }
        actions = { flood; NoAction; }
        const entries = {
            0x9000: flood(1);
            0x9001: NoAction();
        }
    }
    table selector_table {
        key = { hdr.ethernet.dst: exact; hdr.ethernet.src: selector; }
        actions = { flood; forward; NoAction; }
        implementation = chooser;
    }
    table profile_table {
        key = { hdr.ethernet.dst: exact; }
        actions = { flood; forward; NoAction; }
        implementation = members;
    }
    table keyless_table {
        actions = { flood; NoAction; }
        default_action = NoAction();
    }
    table idle_table {
        key = { hdr.ethernet.dst: exact; }
        actions = { flood; NoAction; }
        support_timeout = true;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            exact_table.apply();
            lpm_table.apply();
            ternary_table.apply();
            meter_table.apply();
            const_table.apply();
            selector_table.apply();
            profile_table.apply();
            keyless_table.apply();
            idle_table.apply();
            port_counter.count((bit<32>) standard.ingress_port & 15);
            last_type.write((bit<32>) standard.ingress_port & 7, (bit<32>) hdr.ethernet.type);
            port_meter.execute_meter((bit<32>) standard.ingress_port & 3, meta.color);
            if (hdr.ethernet.type == 0xFFFF) {
                clone(CloneType.I2E, 7);
            }
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = 3;
        }
    }
}

control ComputeChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
