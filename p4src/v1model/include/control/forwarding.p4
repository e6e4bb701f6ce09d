// SPDX-License-Identifier: Apache-2.0
// Where to, for packets that have no path of a plan: the longest prefix (one next hop, or ECMP over several), or the
// station's port for what is not IPv4.

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action_selector(HashAlgorithm.crc16, ECMP_MEMBERS, 16) ecmp_selector;

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

    @id(0x01000303)
    action spread(bit<16> group) {
        meta.ecmp_group = group;
    }

    @id(0x01000304)
    action flood(bit<16> group) {
        standard_metadata.mcast_grp = group;
    }

    @id(0x02000302)
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("dst"); }
        actions = { route; spread; NoAction; }
        default_action = NoAction();
        size = ROUTE_TABLE_SIZE;
    }

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
        size = ECMP_TABLE_SIZE;
        implementation = ecmp_selector;
    }

    @id(0x02000304)
    table station {
        key = { hdr.ethernet.dst: exact @name("dst"); }
        actions = { forward; flood; NoAction; }
        default_action = NoAction();
        size = STATION_TABLE_SIZE;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            if (meta.forwarded == 0) {
                ipv4_lpm.apply();
                if (meta.ecmp_group != 0) {
                    if (hdr.tcp.isValid()) {
                        meta.src_port = hdr.tcp.src_port;
                        meta.dst_port = hdr.tcp.dst_port;
                    } else if (hdr.udp.isValid()) {
                        meta.src_port = hdr.udp.src_port;
                        meta.dst_port = hdr.udp.dst_port;
                    }
                    ecmp.apply();
                }
            }
            if (meta.forwarded == 1) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                if (hdr.ipv4.ihl != 5) {
                    // RFC 1141: the checksum covers options that were not parsed; one less in the time to live is
                    // 0x0100 more in the checksum, end-around carry included.
                    bit<17> sum = (bit<17>)hdr.ipv4.checksum + 17w0x0100;
                    hdr.ipv4.checksum = sum[15:0] + (bit<16>)sum[16:16];
                }
            }
        } else {
            station.apply();
        }
    }
}
