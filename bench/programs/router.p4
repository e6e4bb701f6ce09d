// SPDX-License-Identifier: Apache-2.0
// A plain IPv4 router, the program of the speed benchmark: longest prefix match to a next hop, next hop to port and
// destination MAC, source MAC by port, time to live, checksum verified and updated. The class selector bits of DSCP
// choose the queue (RFC 2474), so that the same program also serves to measure queues.

#include <core.p4>
#include <v1model.p4>

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<9> port_t;
typedef bit<16> next_hop_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;

header ethernet_t {
    mac_t dst;
    mac_t src;
    bit<16> ether_type;
}

header ipv4_header_t {
    bit<4> version;
    bit<4> ihl;
    bit<3> class_selector;
    bit<3> drop_precedence;
    bit<2> ecn;
    bit<16> total_len;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_t src;
    ipv4_t dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_header_t ipv4;
}

struct metadata_t {
    next_hop_t next_hop;
}

parser RouterParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control RouterVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.class_selector, hdr.ipv4.drop_precedence, hdr.ipv4.ecn,
              hdr.ipv4.total_len, hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control RouterIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action drop() {
        mark_to_drop(standard_metadata);
    }

    @id(0x01000001)
    action set_next_hop(next_hop_t next_hop) {
        meta.next_hop = next_hop;
    }

    @id(0x01000002)
    action send(port_t port, mac_t dst_mac) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.dst = dst_mac;
    }

    @id(0x02000001)
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("dst"); }
        actions = { set_next_hop; @defaultonly drop; }
        const default_action = drop();
        size = 4096;
    }

    @id(0x02000002)
    table next_hop {
        key = { meta.next_hop: exact @name("next_hop"); }
        actions = { send; @defaultonly drop; }
        const default_action = drop();
        size = 1024;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError || !hdr.ipv4.isValid() || hdr.ipv4.version != 4
            || hdr.ipv4.ihl != 5 || standard_metadata.checksum_error == 1 || hdr.ipv4.ttl <= 1) {
            drop();
        } else if (ipv4_lpm.apply().hit) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            next_hop.apply();
            standard_metadata.priority = hdr.ipv4.class_selector;
        }
    }
}

control RouterEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @id(0x01000003)
    action set_source(mac_t src_mac) {
        hdr.ethernet.src = src_mac;
    }

    @id(0x02000003)
    table source_mac {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { set_source; NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        source_mac.apply();
    }
}

control RouterComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.class_selector, hdr.ipv4.drop_precedence, hdr.ipv4.ecn,
              hdr.ipv4.total_len, hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control RouterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(RouterParser(), RouterVerifyChecksum(), RouterIngress(), RouterEgress(), RouterComputeChecksum(),
         RouterDeparser()) main;
