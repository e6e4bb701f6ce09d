// SPDX-License-Identifier: Apache-2.0
// States that are the same in every parser. Anything that is not understood to the end is still forwarded by what was
// understood; only what is cut short fails. A parser that includes them has the states parse_ipv4 and parse_udp, too.

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
    state parse_bth {
        packet.extract(hdr.bth);
        transition accept;
    }
    state parse_shim {
        packet.extract(hdr.shim);
        transition accept;
    }
