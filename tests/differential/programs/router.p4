// A router: VLAN, IPv4 with options, IPv6, TCP and UDP; an access list, longest prefixes, hash-based next hops, rewrite,
// checksums; 128-bit keys; every match kind in one pipeline, with direct counters.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header vlan_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> type; }
header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}
header ipv4_options_t { varbit<320> data; }
header ipv6_t {
    bit<4>   version;
    bit<8>   class;
    bit<20>  flow;
    bit<16>  length;
    bit<8>   next;
    bit<8>   hops;
    bit<128> src;
    bit<128> dst;
}
header ports_t { bit<16> src; bit<16> dst; }

struct headers_t {
    ethernet_t     ethernet;
    vlan_t[2]      vlan;
    ipv4_t         ipv4;
    ipv4_options_t options;
    ipv6_t         ipv6;
    ports_t        ports;
}
struct metadata_t {
    bit<16> next_hop;
    bit<16> l4_src;
    bit<16> l4_dst;
    bit<12> vid;
    bit<8>  protocol;
    bit<8>  class;
    bit<1>  routed;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x8100: vlan;
            0x88a8: vlan;
            0x0800: ipv4;
            0x86dd: ipv6;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan.next);
        meta.vid = hdr.vlan.last.vid;
        transition select(hdr.vlan.last.type) {
            0x8100: vlan;
            0x0800: ipv4;
            0x86dd: ipv6;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.protocol = hdr.ipv4.protocol;
        verify(hdr.ipv4.ihl >= 5, error.HeaderTooShort);
        transition select(hdr.ipv4.ihl) {
            5: after_ipv4;
            default: options;
        }
    }
    state options {
        packet.extract(hdr.options, ((bit<32>)hdr.ipv4.ihl - 5) << 5);
        transition after_ipv4;
    }
    state after_ipv4 {
        transition select(hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (0, 6): ports;
            (0, 17): ports;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.protocol = hdr.ipv6.next;
        transition select(hdr.ipv6.next) {
            6: ports;
            17: ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.l4_src = hdr.ports.src;
        meta.l4_dst = hdr.ports.dst;
        transition accept;
    }
}

#define SUMMED { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length, \
    hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, \
    hdr.ipv4.dst }
#define SUMMED_OPTIONS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length, \
    hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, \
    hdr.ipv4.dst, hdr.options.data }

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && !hdr.options.isValid(), SUMMED, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(hdr.ipv4.isValid() && hdr.options.isValid(), SUMMED_OPTIONS, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) acl_hits;
    direct_counter(CounterType.packets) route_hits;
    counter(8, CounterType.packets_and_bytes) port_in;
    counter(512, CounterType.bytes) vlans;
    action_selector(HashAlgorithm.crc32, 32w64, 32w14) spread;

    action drop() { mark_to_drop(standard_metadata); }
    action permit() { acl_hits.count(); }
    action deny() {
        acl_hits.count();
        mark_to_drop(standard_metadata);
        exit;
    }
    action classify(bit<8> class, bit<3> level) {
        acl_hits.count();
        meta.class = class;
        standard_metadata.priority = level;
    }
    action via(bit<16> next_hop) {
        route_hits.count();
        meta.next_hop = next_hop;
        meta.routed = 1;
    }
    action unreachable() {
        route_hits.count();
        meta.routed = 0;
    }
    action via_hop(bit<16> next_hop) {
        meta.next_hop = next_hop;
        meta.routed = 1;
    }
    action send(bit<9> port, bit<48> src, bit<48> dst) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
    }
    action flood(bit<16> group) { standard_metadata.mcast_grp = group; }

    table acl {
        key = {
            standard_metadata.ingress_port: optional;
            hdr.ethernet.type: ternary;
            meta.vid: range;
            meta.protocol: ternary;
            meta.l4_src: range;
            meta.l4_dst: ternary;
        }
        actions = { permit; deny; classify; }
        default_action = permit();
        counters = acl_hits;
        size = 128;
    }
    table routes4 {
        key = { hdr.ipv4.dst: lpm; }
        actions = { via; unreachable; }
        default_action = unreachable();
        counters = route_hits;
        size = 128;
    }
    table routes6 {
        key = { hdr.ipv6.dst: lpm; meta.vid: exact; }
        actions = { via_hop; drop; NoAction; }
        default_action = drop();
        size = 128;
    }
    table flows6 {
        key = { hdr.ipv6.src: ternary; hdr.ipv6.flow: ternary; }
        actions = { via_hop; NoAction; }
        size = 64;
    }
    table spread_flows {
        key = {
            meta.class: exact;
            hdr.ethernet.src: selector;
            meta.l4_src: selector;
            meta.l4_dst: selector;
            meta.protocol: selector;
        }
        actions = { send; NoAction; }
        implementation = spread;
        size = 32;
    }
    table next_hops {
        key = { meta.next_hop: exact; }
        actions = { send; flood; drop; }
        default_action = drop();
        size = 64;
    }
    table stations {
        key = { hdr.ethernet.dst: exact; meta.vid: exact; }
        actions = { send; flood; NoAction; }
        default_action = flood(1);
        size = 64;
    }

    apply {
        if (!hdr.ethernet.isValid()) {
            drop();
            return;
        }
        port_in.count((bit<32>)standard_metadata.ingress_port & 7);
        vlans.count((bit<32>)meta.vid & 511);
        acl.apply();
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1 && standard_metadata.checksum_error == 0) {
            switch (routes4.apply().action_run) {
                via: { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
                unreachable: { drop(); }
            }
        } else if (hdr.ipv6.isValid()) {
            if (!flows6.apply().hit) {
                routes6.apply();
            }
            hdr.ipv6.hops = hdr.ipv6.hops |-| 1;
        } else if (!hdr.ipv4.isValid()) {
            stations.apply();
        } else {
            drop();
        }
        if (meta.routed == 1) {
            if (!spread_flows.apply().hit) {
                next_hops.apply();
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action tag(bit<12> vid) {
        hdr.vlan.push_front(1);
        hdr.vlan[0].setValid();
        hdr.vlan[0] = { 0, 0, vid, hdr.ethernet.type };
        hdr.ethernet.type = 0x8100;
    }
    action untag() {
        if (hdr.vlan[0].isValid()) {
            hdr.ethernet.type = hdr.vlan[0].type;
            hdr.vlan.pop_front(1);
        }
    }
    action mark(bit<6> dscp) {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.dscp = dscp;
        }
    }
    table port_tags {
        key = { standard_metadata.egress_port: exact; standard_metadata.egress_rid: ternary; meta.vid: ternary; }
        actions = { tag; untag; mark; NoAction; }
        size = 64;
    }
    apply {
        if (standard_metadata.instance_type == 5 && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        } else if (hdr.ethernet.isValid()) {
            port_tags.apply();
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && !hdr.options.isValid(), SUMMED, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.ipv4.isValid() && hdr.options.isValid(), SUMMED_OPTIONS, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
