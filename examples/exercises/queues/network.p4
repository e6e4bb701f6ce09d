// What the exercises of this folder have in common: headers, parser, forwarding, checksum.
//
//     h1 --1
//            s1 3 ---- 3 s2 1-- h3        what comes from a host leaves by port 3,
//     h2 --2                             what comes in by port 3 goes to its host

const bit<16> IPV4 = 0x800;
const bit<8> UDP = 17;
const bit<16> PROBE = 7777;  // the UDP port of probes
const bit<9> TRUNK = 3;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
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

// A probe begins with the number of its records. Each switch adds one in front of those that it finds.
header probe_t {
    bit<8> records;
}

const bit<16> RECORD_BYTES = 11;

header record_t {
    bit<8> port;       // the port by which the probe left the switch
    bit<32> bytes;     // what left by that port since the last probe, this one included, as long as it was before
    bit<48> lasted;    // microseconds since the last probe left by that port
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    probe_t probe;
    record_t[4] records;
}

struct metadata_t {
    bit<8> unread;
}

parser Read(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            UDP: udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            PROBE: probe;
            default: accept;
        }
    }
    state probe {
        packet.extract(hdr.probe);
        meta.unread = hdr.probe.records;
        transition record;
    }
    state record {
        transition select(meta.unread) {
            0: accept;
            default: one_record;
        }
    }
    state one_record {
        packet.extract(hdr.records.next);
        meta.unread = meta.unread - 1;
        transition record;
    }
}

control Forward(inout headers_t hdr, inout standard_metadata_t std) {
    action to(bit<9> port) {
        std.egress_spec = port;
    }
    table host {
        key = {
            hdr.ipv4.dst: exact;
        }
        actions = {
            to;
        }
        const entries = {
            0x0a000001: to(1);  // 10.0.0.1 is h1
            0x0a000002: to(2);
            0x0a000003: to(1);
        }
        const default_action = to(511);
    }
    apply {
        if (std.ingress_port == TRUNK && hdr.ipv4.isValid()) {
            host.apply();
        } else {
            to(TRUNK);
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Sum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.length, hdr.ipv4.id,
              hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Write(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
