// SPDX-License-Identifier: Apache-2.0
// A switch of fixed function, as any cluster has it: it forwards by address, and each port has eight strict queues, of
// which a packet takes that of its class selector (RFC 2474). It knows no jobs and no flows, keeps no state, and writes
// nothing into packets but the next hop and marks of congestion: hosts rank (docs/ranking-at-hosts.md).

#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.h"
#include "../shared/headers.p4"
#include "sizes_dscp.h"

typedef bit<9> port_t;
typedef bit<3> queue_t;

struct headers_t {
    ethernet_t ethernet;
    ipv4_h     ipv4;
}

struct metadata_t {
    bit<1>  forwarded;
    queue_t queue;
}

parser EchelonParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

#include "../v1model/include/checksum.p4"

control EchelonIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(DROP_REASONS, CounterType.packets_and_bytes) dropped;

    @id(0x01000301)
    action forward(port_t port) {
        standard_metadata.egress_spec = port;
        meta.forwarded = 1;
    }

    @id(0x01000302)
    action route(port_t port, mac_t dst_mac) {
        forward(port);
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    @id(0x02000302)
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("dst"); }
        actions = { route; NoAction; }
        default_action = NoAction();
        size = ROUTE_TABLE_SIZE;
    }

    @id(0x02000304)
    table station {
        key = { hdr.ethernet.dst: exact @name("dst"); }
        actions = { forward; NoAction; }
        default_action = NoAction();
        size = STATION_TABLE_SIZE;
    }

    action drop_because(bit<32> reason) {
        dropped.count(reason);
        mark_to_drop(standard_metadata);
    }

    apply {
        // Packets with options are forwarded like frames that are not IPv4, by their station.
        bool routed = hdr.ipv4.isValid() && hdr.ipv4.ihl == 5;
        if (standard_metadata.parser_error != error.NoError
            || (hdr.ipv4.isValid() && (hdr.ipv4.version != 4 || hdr.ipv4.ihl < 5))) {
            drop_because(DROP_MALFORMED);
        } else if (standard_metadata.checksum_error == 1) {
            drop_because(DROP_CHECKSUM);
        } else if (hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) {
            drop_because(DROP_TTL);
        } else {
            if (routed) {
                ipv4_lpm.apply();
            } else {
                station.apply();
            }
            if (hdr.ipv4.isValid()) {
                meta.queue = hdr.ipv4.dscp[5:3];
            }
            standard_metadata.priority = meta.queue;
            if (meta.forwarded == 0) {
                drop_because(DROP_NO_ROUTE);
            }
        }
    }
}

control EchelonEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    bit<19> threshold_packets = 0;

    @id(0x01000502)
    action mark_from(bit<19> packets) {
        threshold_packets = packets;
    }

    @id(0x02000502)
    table ecn_threshold {
        key = {
            standard_metadata.egress_port: exact @name("port");
            meta.queue: exact @name("queue");
        }
        actions = { mark_from; NoAction; }
        default_action = NoAction();
        size = PORT_QUEUES;
    }

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ecn != 0 && hdr.ipv4.ihl == 5) {
            if (ecn_threshold.apply().hit && standard_metadata.enq_qdepth >= threshold_packets) {
                hdr.ipv4.ecn = 3;
            }
        }
    }
}

control EchelonDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(EchelonParser(), EchelonVerifyChecksum(), EchelonIngress(), EchelonEgress(), EchelonComputeChecksum(),
         EchelonDeparser()) main;
