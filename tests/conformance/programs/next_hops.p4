// A router in the spirit of SAI P4, for the requirements that need more than one table: packets of the controller enter
// ingress, addresses lead to groups of next hops, next hops to ports and addresses, and rules may override them. Ports
// are numbers of the controller (translated), and rules and next hops say what they refer to and may contain.
//   p4c-bm2-ss --std p4-16 --arch v1model -o next_hops.json --p4runtime-files next_hops.p4info.txtpb next_hops.p4
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

@p4runtime_translation("example.com/port", 32)
type bit<9> port_id_t;

@controller_header("packet_in")
header packet_in_t {
    port_id_t ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    port_id_t egress_port;
    bit<1> submit_to_ingress;
    bit<6> unused;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<8> tos;
    bit<16> bytes;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct station_t {
    bit<48> address;
    bit<32> host;
}

struct metadata_t {
    bit<10> vrf;
    bit<16> next_hop;
    bit<1> admitted;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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
            0x800: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action admit() {
        meta.admitted = 1;
    }
    action set_vrf(bit<10> vrf) {
        meta.vrf = vrf;
    }
    action set_next_hop(@refers_to(next_hop_table, id) bit<16> next_hop) {
        meta.next_hop = next_hop;
    }
    action drop() {
        mark_to_drop(standard);
    }
    action send(port_id_t port, bit<48> src, bit<48> dst) {
        standard.egress_spec = (bit<9>) port;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    action trap() {
        standard.egress_spec = CPU_PORT;
    }
    action copy() {
        clone(CloneType.I2E, 9);
    }
    action learn() {
        digest<station_t>(1, { hdr.ethernet.src, hdr.ipv4.src });
    }

    action_selector(HashAlgorithm.crc16, 32w128, 32w16) groups;

    table admission_table {
        key = {
            hdr.ethernet.dst: ternary @name("dst_mac");
            (port_id_t) standard.ingress_port: optional @name("in_port");
        }
        actions = { admit; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 64;
    }
    @entry_restriction("tos::mask != 0 -> tos::value != 255; prefix::prefix_length >= 8;")
    table vrf_table {
        key = {
            hdr.ipv4.src: ternary @name("prefix");
            hdr.ipv4.tos: ternary @name("tos");
        }
        actions = { set_vrf; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 64;
    }
    table route_table {
        key = {
            meta.vrf: exact @name("vrf");
            hdr.ipv4.dst: lpm @name("dst");
        }
        actions = { set_next_hop; drop; @defaultonly NoAction; }
        size = 1024;
    }
    table group_table {
        key = {
            meta.next_hop: exact @name("group");
            hdr.ipv4.src: selector;
            hdr.ipv4.dst: selector;
        }
        actions = { set_next_hop; @defaultonly NoAction; }
        implementation = groups;
        size = 64;
    }
    table next_hop_table {
        key = { meta.next_hop: exact @name("id"); }
        actions = { send; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 256;
    }
    table neighbor_table {
        key = { meta.next_hop: exact @name("next_hop") @refers_to(next_hop_table, id); }
        actions = { NoAction; }
        size = 64;
    }
    @entry_restriction("protocol::mask != 0 -> protocol::value != 0;")
    table rule_table {
        key = {
            hdr.ipv4.protocol: ternary @name("protocol");
            hdr.ipv4.dst: ternary @name("dst");
            hdr.ipv4.ttl: range @name("ttl");
        }
        actions = { drop; trap; copy; learn; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    apply {
        if (hdr.packet_out.isValid() && hdr.packet_out.submit_to_ingress == 0) {
            standard.egress_spec = (bit<9>) hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            hdr.packet_out.setInvalid();
            mark_to_drop(standard);
            admission_table.apply();
            if (hdr.ipv4.isValid() && meta.admitted == 1) {
                vrf_table.apply();
                route_table.apply();
                group_table.apply();
                neighbor_table.apply();
                next_hop_table.apply();
                rule_table.apply();
            }
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (port_id_t) standard.ingress_port;
            hdr.packet_in.reason = 1;
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
