//! TFTP packets (RFC 1350, section 5; RFC 2347): those of a client are parsed, those of a server are written.

const READ: u16 = 1;
const WRITE: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OPTION_ACK: u16 = 6;

/// Names and values of options, in order.
pub type Options = Vec<(Vec<u8>, Vec<u8>)>;

/// A request to read or write a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileRequest {
    /// The file name as sent, in no particular encoding.
    pub name: Vec<u8>,
    /// `octet`, `netascii` or `mail`, in any case.
    pub mode: Vec<u8>,
    /// Options (RFC 2347).
    pub options: Options,
}

/// An error code of RFC 1350 or RFC 2347.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u16);

impl ErrorCode {
    /// No other code fits; the text has the reason.
    pub const UNDEFINED: Self = Self(0);
    /// The file does not exist.
    pub const NOT_FOUND: Self = Self(1);
    /// The client has no permission.
    pub const ACCESS_VIOLATION: Self = Self(2);
    /// The packet has no meaning at this port.
    pub const ILLEGAL_OPERATION: Self = Self(4);
    /// The port belongs to another client's transfer.
    pub const UNKNOWN_TRANSFER: Self = Self(5);
    /// The client refuses the acknowledged options.
    pub const OPTIONS_REFUSED: Self = Self(8);
}

/// A packet from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPacket {
    /// A request to read a file.
    Read(FileRequest),
    /// A request to write a file.
    Write,
    /// Acknowledges all blocks up to this one.
    Ack(u16),
    /// Ends the transfer.
    Error(ErrorCode),
}

impl ClientPacket {
    /// Parses a packet; none if it is not one that a TFTP client sends to a server that files are read from. An incomplete
    /// option at the end of a request is ignored.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (opcode, rest) = number(bytes)?;
        Some(match opcode {
            READ => Self::Read(request(rest)?),
            WRITE => request(rest).map(|_| Self::Write)?,
            ACK => Self::Ack(number(rest)?.0),
            ERROR => Self::Error(ErrorCode(number(rest)?.0)),
            _ => return None,
        })
    }
}

/// Returns an ERROR packet.
pub fn error_packet(code: ErrorCode, text: &str) -> Vec<u8> {
    let header = [ERROR.to_be_bytes(), code.0.to_be_bytes()].concat();
    header.into_iter().chain(terminated(text.as_bytes())).collect()
}

/// Returns an OACK packet.
pub(crate) fn option_ack(options: &Options) -> Vec<u8> {
    let texts = options.iter().flat_map(|(name, value)| [name, value]);
    OPTION_ACK.to_be_bytes().into_iter().chain(texts.flat_map(|text| terminated(text))).collect()
}

/// Returns the bytes before the data in a DATA packet.
pub(crate) fn data_header(block: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (DATA.to_be_bytes(), block.to_be_bytes());
    [a, b, c, d]
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}

fn request(mut rest: &[u8]) -> Option<FileRequest> {
    let name = string(&mut rest)?;
    let mode = string(&mut rest)?;
    let options = std::iter::from_fn(|| Some((string(&mut rest)?, string(&mut rest)?))).collect();
    Some(FileRequest { name, mode, options })
}

/// Takes a text and the NUL after it from `rest`.
fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (text, tail) = rest.split_at_checked(end)?;
    *rest = tail.get(1..)?;
    Some(text.into())
}

/// Returns `text` up to its first NUL, and a NUL.
fn terminated(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().copied().take_while(|byte| *byte != 0).chain([0])
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Returns the bytes of a request.
    fn encode_request(opcode: u16, FileRequest { name, mode, options }: &FileRequest) -> Vec<u8> {
        let options = options.iter().flat_map(|(name, value)| [name, value]);
        let texts = [name, mode].into_iter().chain(options);
        let texts = texts.flat_map(|text| [text.as_slice(), b"\0"]).collect::<Vec<_>>();
        [&opcode.to_be_bytes(), texts.concat().as_slice()].concat()
    }

    /// Returns the block number and the data of a DATA packet; none for another packet.
    pub(crate) fn parse_data(bytes: &[u8]) -> Option<(u16, &[u8])> {
        let (opcode, rest) = number(bytes).unwrap();
        (opcode == DATA).then(|| number(rest).unwrap())
    }

    #[test]
    fn the_request_of_ovmf_is_parsed() {
        let bytes = b"\x00\x01snponly.efi\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0";
        let option = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let options =
            vec![option(b"tsize", b"0"), option(b"blksize", b"1468"), option(b"windowsize", b"4")];
        let request = FileRequest { name: b"snponly.efi".into(), mode: b"octet".into(), options };
        assert_eq!(ClientPacket::parse(bytes), Some(ClientPacket::Read(request)));
    }

    #[test]
    fn an_incomplete_packet_or_one_of_a_server_is_an_error() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\0\x01",
            b"\0\x01name",
            b"\0\x01name\0octet",
            b"\0\x02name\0octet",
            b"\0\x03\0\x01data",
            b"\0\x04\0",
            b"\0\x05\0",
            b"\0\x06blksize\x008\0",
            b"\0\x07",
        ] {
            assert_eq!(ClientPacket::parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn packets_of_the_server_are_written_as_the_rfcs_show_them() {
        let options = vec![(b"blksize".to_vec(), b"8".to_vec())];
        assert_eq!(option_ack(&options), b"\0\x06blksize\x008\0");
        assert_eq!(error_packet(ErrorCode::NOT_FOUND, "no\0thing"), b"\0\x05\0\x01no\0");
        assert_eq!(data_header(0x102), *b"\0\x03\x01\x02");
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(1..=255_u8, 0..40)
    }

    fn file_request() -> impl Strategy<Value = FileRequest> {
        let options = prop::collection::vec((text(), text()), 0..6);
        (text(), text(), options).prop_map(|(name, mode, options)| FileRequest {
            name,
            mode,
            options,
        })
    }

    /// Returns packets of a client with their bytes.
    fn packet() -> impl Strategy<Value = (Vec<u8>, ClientPacket)> {
        prop_oneof![
            file_request()
                .prop_map(|request| (encode_request(READ, &request), ClientPacket::Read(request))),
            file_request()
                .prop_map(|request| (encode_request(WRITE, &request), ClientPacket::Write)),
            any::<[u8; 2]>().prop_map(|[a, b]| {
                (vec![0, 4, a, b], ClientPacket::Ack(u16::from_be_bytes([a, b])))
            }),
            (any::<u16>(), "[a-z ]{0,40}").prop_map(|(code, text)| {
                (error_packet(ErrorCode(code), &text), ClientPacket::Error(ErrorCode(code)))
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_packet_of_a_client_is_parsed((bytes, packet) in packet()) {
            prop_assert_eq!(ClientPacket::parse(&bytes), Some(packet));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = ClientPacket::parse(&bytes);
        }

        #[test]
        fn no_truncated_or_changed_packet_makes_the_parser_panic((mut bytes, _) in packet(), at: prop::sample::Index, byte: u8) {
            let at = at.index(bytes.len());
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            let _ = ClientPacket::parse(&bytes);
            bytes.truncate(at);
            let _ = ClientPacket::parse(&bytes);
        }
    }
}
