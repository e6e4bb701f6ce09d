// SPDX-License-Identifier: Apache-2.0
// A state of both parsers. A select of Tofino compares no numbers.

    state parse_udp {
        packet.extract(hdr.udp);
        // Somebody else's datagram to our port may be too short for a shim. What RoCE sends is as long: BTH (12), a header
        // more or data (4), and the invariant CRC (4). Only SEND without data is shorter, and is nobody's.
        // Lengths from 28 (8 + SHIM_BYTES) on, by prefixes.
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (SHIM_UDP_PORT, 0x001C &&& 0xFFFC): parse_shim;
            (SHIM_UDP_PORT, 0x0020 &&& 0xFFE0): parse_shim;
            (SHIM_UDP_PORT, 0x0040 &&& 0xFFC0): parse_shim;
            (SHIM_UDP_PORT, 0x0080 &&& 0xFF80): parse_shim;
            (SHIM_UDP_PORT, 0x0100 &&& 0xFF00): parse_shim;
            (SHIM_UDP_PORT, 0x0200 &&& 0xFE00): parse_shim;
            (SHIM_UDP_PORT, 0x0400 &&& 0xFC00): parse_shim;
            (SHIM_UDP_PORT, 0x0800 &&& 0xF800): parse_shim;
            (SHIM_UDP_PORT, 0x1000 &&& 0xF000): parse_shim;
            (SHIM_UDP_PORT, 0x2000 &&& 0xE000): parse_shim;
            (SHIM_UDP_PORT, 0x4000 &&& 0xC000): parse_shim;
            (SHIM_UDP_PORT, 0x8000 &&& 0x8000): parse_shim;
            (ROCE_UDP_PORT, 0x001C &&& 0xFFFC): parse_bth;
            (ROCE_UDP_PORT, 0x0020 &&& 0xFFE0): parse_bth;
            (ROCE_UDP_PORT, 0x0040 &&& 0xFFC0): parse_bth;
            (ROCE_UDP_PORT, 0x0080 &&& 0xFF80): parse_bth;
            (ROCE_UDP_PORT, 0x0100 &&& 0xFF00): parse_bth;
            (ROCE_UDP_PORT, 0x0200 &&& 0xFE00): parse_bth;
            (ROCE_UDP_PORT, 0x0400 &&& 0xFC00): parse_bth;
            (ROCE_UDP_PORT, 0x0800 &&& 0xF800): parse_bth;
            (ROCE_UDP_PORT, 0x1000 &&& 0xF000): parse_bth;
            (ROCE_UDP_PORT, 0x2000 &&& 0xE000): parse_bth;
            (ROCE_UDP_PORT, 0x4000 &&& 0xC000): parse_bth;
            (ROCE_UDP_PORT, 0x8000 &&& 0x8000): parse_bth;
            default: accept;
        }
    }
