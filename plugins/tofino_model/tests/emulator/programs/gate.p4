/* A gate for UDP: routes by an algorithmic LPM table, classes by ranges, a port translation that keeps the checksum, a
 * register that counts per class, and a `switch` over the action that ran.
 *
 * p4c's Tofino back end made gate.bfa of it:
 *   p4c-barefoot --target tofino --arch tna --std p4-16 -I P4INCLUDE -o DIR gate.p4
 */

#include <core.p4>
#include <tna.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTO_UDP = 17;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<8> version_ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> proto;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
}

struct meta_t {
    bit<16> rest;
    bit<8> class;
}

struct empty_t {}

struct count_t {
    bit<32> packets;
    bit<32> bytes;
}

parser IngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t intr) {
    Checksum() rest;

    state start {
        packet.extract(intr);
        packet.advance(PORT_METADATA_SIZE);
        meta.rest = 0;
        meta.class = 0;
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: ipv4;
            default: reject;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.proto) {
            PROTO_UDP: udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        rest.subtract({hdr.udp.checksum});
        rest.subtract({hdr.udp.dst});
        meta.rest = rest.get();
        transition accept;
    }
}

control Ingress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t intr,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    Register<count_t, bit<8>>(256) counts;
    RegisterAction<count_t, bit<8>, bit<32>>(counts) count = {
        void apply(inout count_t cell, out bit<32> packets) {
            cell.packets = cell.packets |+| 1;
            cell.bytes = cell.bytes + (bit<32>) hdr.ipv4.length;
            packets = cell.packets;
        }
    };

    action forward(PortId_t port, bit<48> next) {
        to_tm.ucast_egress_port = port;
        hdr.ethernet.dst = next;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| 1;
    }
    action drop() {
        to_deparser.drop_ctl = 1;
    }
    Alpm(number_partitions = 1024, subtrees_per_partition = 2) partitions;
    table route {
        key = { hdr.ipv4.dst: lpm; }
        actions = { forward; drop; }
        const default_action = drop;
        size = 1024;
        alpm = partitions;
    }

    action set_class(bit<8> class) {
        meta.class = class;
    }
    table classes {
        key = {
            hdr.udp.dst: range;
            hdr.ipv4.tos: ternary;
        }
        actions = { set_class; NoAction; }
        const default_action = NoAction;
        const entries = {
            (1000 .. 1999, 0x80 &&& 0xC0): set_class(1);
            (1000 .. 1999, _): set_class(2);
            (53, _): set_class(3);
        }
        size = 16;
    }

    action translate(bit<16> port) {
        hdr.udp.dst = port;
    }
    action keep() {}
    table translation {
        key = { meta.class: exact; }
        actions = { translate; keep; }
        default_action = keep;
        size = 256;
    }

    apply {
        route.apply();
        if (hdr.udp.isValid()) {
            classes.apply();
            hdr.ipv4.id = (bit<16>) count.execute(meta.class)[15:0];
            switch (translation.apply().action_run) {
                translate: { hdr.ipv4.tos = 0xB8; }
                keep: { hdr.ipv4.fragment = 0x4000; }
            }
        }
    }
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t to_deparser) {
    Checksum() ip;
    Checksum() udp;

    apply {
        hdr.ipv4.checksum = ip.update({hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id,
            hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.proto, hdr.ipv4.src, hdr.ipv4.dst});
        hdr.udp.checksum = udp.update(data = {hdr.udp.dst, meta.rest}, zeros_as_ones = true);
        packet.emit(hdr);
    }
}

parser EgressParser(packet_in packet, out headers_t hdr, out empty_t meta, out egress_intrinsic_metadata_t intr) {
    state start {
        packet.extract(intr);
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Egress(inout headers_t hdr, inout empty_t meta, in egress_intrinsic_metadata_t intr,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t to_deparser,
               inout egress_intrinsic_metadata_for_output_port_t to_port) {
    action leave(bit<48> own) {
        hdr.ethernet.src = own;
    }
    table leaving {
        key = { intr.egress_port: exact; }
        actions = { leave; }
        size = 64;
    }

    apply {
        leaving.apply();
    }
}

control EgressDeparser(packet_out packet, inout headers_t hdr, in empty_t meta,
                       in egress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
