// SPDX-License-Identifier: Apache-2.0
// A pause for senders that know nothing of DRAIN. While a connection's packets have to stay below the queue that they
// are worth, and some of them are on their way, the acknowledgements that return to its sender announce a window of
// zero. It then sends nothing new, and the next packet finds none of its connection in the old queue.
//
// The acknowledgement of all that the connection has sent carries the true window, so no sender is left with a closed
// one: whoever has heard of a closed window still waits for an acknowledgement. Should what the switch knows be of
// another connection, or wrong, no window is closed 2^22 us (4 s) after the last packet of data.
//
// Both ends of a connection that carries data both ways must not have their windows closed: each would acknowledge from
// the left edge of what it has sent, which the other takes for old. There the switch closes none. It still learns that all
// that was sent has arrived, by which control Promotion knows that a packet is the only one on its way.

const bit<8> TCP_SYN = 0x02;
const bit<8> TCP_ACK = 0x10;

control Pause(inout headers_t hdr, in time_us_t now, register<bytes_sent_t> connection_sent,
              register<time_us_t> connection_last_us, register<bit<1>> connection_stays,
              register<bit<33>> connection_acked) {
    bit<1> answers = 0;
    bit<1> may_close = 0;
    bit<32> connection = 0;

    @id(0x01000701)
    action set_answered(connection_id_t answered, bit<1> closes) {
        answers = 1;
        may_close = closes;
        connection = (bit<32>)answered;
    }

    @id(0x02000701)
    table tcp_answer {
        key = {
            hdr.ipv4.src: exact @name("src");
            hdr.ipv4.dst: exact @name("dst");
            hdr.tcp.src_port: exact @name("src_port");
            hdr.tcp.dst_port: exact @name("dst_port");
        }
        actions = { set_answered; NoAction; }
        default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
    }

    apply {
        if (hdr.tcp.isValid() && hdr.tcp.flags & (TCP_SYN | TCP_ACK) == TCP_ACK) {
            tcp_answer.apply();
            if (answers == 1) {
                bytes_sent_t sent;
                bit<1> stays;
                time_us_t last_us;
                connection_last_us.read(last_us, connection);
                connection_sent.read(sent, connection);
                connection_stays.read(stays, connection);
                connection_acked.write(connection, 1w1 ++ hdr.tcp.ack);
                bit<32> behind = hdr.tcp.ack - sent[31:0];
                time_us_t since_us = now - last_us;
                if (may_close == 1 && stays == 1 && sent[63:32] == hdr.tcp.dst_port ++ hdr.tcp.src_port
                    && behind[31:24] == 0xFF && since_us[47:22] == 0) {
                    // RFC 1624: the checksum without the words of the window.
                    bit<17> sum = (bit<17>)(~hdr.tcp.checksum) + (bit<17>)(~hdr.tcp.window);
                    hdr.tcp.checksum = ~(sum[15:0] + (bit<16>)sum[16:16]);
                    hdr.tcp.window = 0;
                }
            }
        }
    }
}
