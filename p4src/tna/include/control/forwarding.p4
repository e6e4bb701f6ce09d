// SPDX-License-Identifier: Apache-2.0
// Where to, for packets that have no path of a plan: the longest prefix (one next hop, or ECMP over several), or the
// station's port for what is not IPv4. With ONE_NEXT_HOP there is no ECMP.

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
#ifndef ONE_NEXT_HOP
    Hash<bit<16>>(HashAlgorithm_t.CRC16) ecmp_hash;
    ActionProfile(ECMP_MEMBERS) ecmp_members;
    ActionSelector(ecmp_members, ecmp_hash, SelectorMode_t.FAIR, 32w64, ECMP_TABLE_SIZE) ecmp_selector;
#endif

    @id(0x01000301)
    action forward(port_t port) {
        meta.egress_port = port;
        meta.forwarded = 1;
    }

    @id(0x01000302)
    action route(port_t port, mac_t dst_mac) {
        meta.egress_port = port;
        hdr.ethernet.dst = dst_mac;
        meta.forwarded = 1;
    }

#ifndef ONE_NEXT_HOP
    @id(0x01000303)
    action spread(bit<16> group) {
        meta.ecmp_group = group;
    }
#endif

    @id(0x01000304)
    action flood(bit<16> group) {
        ig_tm_md.mcast_grp_a = group;
        meta.flooded = 1;
    }

    @id(0x02000302)
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("dst"); }
#ifndef ONE_NEXT_HOP
        actions = { route; spread; NoAction; }
#else
        actions = { route; NoAction; }
#endif
        const default_action = NoAction();
        size = ROUTE_TABLE_SIZE;
    }

#ifndef ONE_NEXT_HOP
    @id(0x02000303)
    table ecmp {
        key = {
            meta.ecmp_group: exact @name("group");
            hdr.ipv4.src: selector;
            hdr.ipv4.dst: selector;
            hdr.ipv4.protocol: selector;
            meta.src_port: selector;
            meta.dst_port: selector;
        }
        actions = { route; NoAction; }
        const default_action = NoAction();
        size = ECMP_TABLE_SIZE;
        implementation = ecmp_selector;
    }
#endif

    @id(0x02000304)
    table station {
        key = { hdr.ethernet.dst: exact @name("dst"); }
        actions = { forward; flood; NoAction; }
        const default_action = NoAction();
        size = STATION_TABLE_SIZE;
    }

    apply {
#ifndef ONE_NEXT_HOP
        if (hdr.tcp.isValid()) {
            meta.src_port = hdr.tcp.src_port;
            meta.dst_port = hdr.tcp.dst_port;
        } else if (hdr.udp.isValid()) {
            meta.src_port = hdr.udp.src_port;
            meta.dst_port = hdr.udp.dst_port;
        }
#endif
        if (!hdr.ipv4.isValid()) {
            station.apply();
        } else if (meta.forwarded == 0) {
            ipv4_lpm.apply();
        }
#ifndef ONE_NEXT_HOP
        if (meta.ecmp_group != 0) {
            ecmp.apply();
        }
#endif
    }
}
