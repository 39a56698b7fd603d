//! TFTP packets (RFC 1350, section 5; RFC 2347).

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

/// A TFTP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A request to read a file.
    Read(FileRequest),
    /// A request to write a file.
    Write(FileRequest),
    /// One block of a file.
    Data {
        /// The number of the block, counted from 1 and rolling over.
        block: u16,
        /// The bytes of the block.
        data: Vec<u8>,
    },
    /// Acknowledges all blocks up to this one.
    Ack(u16),
    /// Ends the transfer.
    Error {
        /// The reason, for programs.
        code: ErrorCode,
        /// The reason, for people.
        text: Vec<u8>,
    },
    /// Acknowledges options, with the values that apply.
    OptionAck(Options),
}

/// The bytes are not a TFTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a TFTP packet")]
pub struct NotTftp;

impl Packet {
    /// Parses a packet. An incomplete option at the end of a request is ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotTftp> {
        let (opcode, mut rest) = number(bytes)?;
        Ok(match opcode {
            READ => Self::Read(request(rest)?),
            WRITE => Self::Write(request(rest)?),
            DATA => {
                let (block, data) = number(rest)?;
                Self::Data { block, data: data.into() }
            }
            ACK => Self::Ack(number(rest)?.0),
            ERROR => {
                let (code, rest) = number(rest)?;
                let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                Self::Error { code: ErrorCode(code), text: text.into() }
            }
            OPTION_ACK => Self::OptionAck(options(&mut rest)),
            _ => return Err(NotTftp),
        })
    }

    /// Returns the bytes of the packet. A NUL inside a text ends it.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Read(request) => texts(READ, [&request.name, &request.mode], &request.options),
            Self::Write(request) => texts(WRITE, [&request.name, &request.mode], &request.options),
            Self::Data { block, data } => [&data_header(*block)[..], data].concat(),
            Self::Ack(block) => [ACK.to_be_bytes(), block.to_be_bytes()].concat(),
            Self::Error { code, text } => {
                let header = [ERROR.to_be_bytes(), code.0.to_be_bytes()].concat();
                [header, terminated(text)].concat()
            }
            Self::OptionAck(options) => texts(OPTION_ACK, [], options),
        }
    }

    /// Creates an error packet.
    pub fn error(code: ErrorCode, text: &str) -> Self {
        Self::Error { code, text: text.into() }
    }
}

/// Returns the bytes before the data in a DATA packet.
pub(crate) fn data_header(block: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (DATA.to_be_bytes(), block.to_be_bytes());
    [a, b, c, d]
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), NotTftp> {
    let (number, rest) = bytes.split_first_chunk().ok_or(NotTftp)?;
    Ok((u16::from_be_bytes(*number), rest))
}

fn request(mut rest: &[u8]) -> Result<FileRequest, NotTftp> {
    let name = string(&mut rest).ok_or(NotTftp)?;
    let mode = string(&mut rest).ok_or(NotTftp)?;
    Ok(FileRequest { name, mode, options: options(&mut rest) })
}

fn options(rest: &mut &[u8]) -> Options {
    std::iter::from_fn(|| Some((string(rest)?, string(rest)?))).collect()
}

/// Takes a text and the NUL after it from `rest`.
fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (text, tail) = rest.split_at_checked(end)?;
    *rest = tail.get(1..)?;
    Some(text.into())
}

fn terminated(text: &[u8]) -> Vec<u8> {
    text.iter().copied().take_while(|byte| *byte != 0).chain([0]).collect()
}

fn texts<const N: usize>(opcode: u16, texts: [&Vec<u8>; N], options: &Options) -> Vec<u8> {
    let options = options.iter().flat_map(|(name, value)| [name, value]);
    let mut bytes = opcode.to_be_bytes().to_vec();
    texts.into_iter().chain(options).for_each(|text| bytes.extend(terminated(text)));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_request_of_ovmf_is_parsed() {
        let bytes = b"\x00\x01snponly.efi\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0";
        let option = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let options =
            vec![option(b"tsize", b"0"), option(b"blksize", b"1468"), option(b"windowsize", b"4")];
        let request = FileRequest { name: b"snponly.efi".into(), mode: b"octet".into(), options };
        assert_eq!(Packet::parse(bytes), Ok(Packet::Read(request)));
    }

    #[test]
    fn an_incomplete_packet_is_an_error() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\0\x01",
            b"\0\x01name",
            b"\0\x01name\0octet",
            b"\0\x07",
            b"\0\x04\0",
        ] {
            assert_eq!(Packet::parse(bytes), Err(NotTftp), "{bytes:?}");
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(1..=255_u8, 0..40)
    }

    fn packet() -> impl Strategy<Value = Packet> {
        let options = || prop::collection::vec((text(), text()), 0..6);
        let request = || {
            (text(), text(), options()).prop_map(|(name, mode, options)| FileRequest {
                name,
                mode,
                options,
            })
        };
        prop_oneof![
            request().prop_map(Packet::Read),
            request().prop_map(Packet::Write),
            (any::<u16>(), prop::collection::vec(any::<u8>(), 0..600))
                .prop_map(|(block, data)| Packet::Data { block, data }),
            any::<u16>().prop_map(Packet::Ack),
            (any::<u16>(), text())
                .prop_map(|(code, text)| Packet::Error { code: ErrorCode(code), text }),
            options().prop_map(Packet::OptionAck),
        ]
    }

    proptest! {
        #[test]
        fn an_encoded_packet_is_parsed_back(packet in packet()) {
            prop_assert_eq!(Packet::parse(&packet.encode()), Ok(packet));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Packet::parse(&bytes);
        }

        #[test]
        fn no_truncated_or_changed_packet_makes_the_parser_panic(packet in packet(), at: prop::sample::Index, byte: u8) {
            let mut bytes = packet.encode();
            let at = at.index(bytes.len());
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            let _ = Packet::parse(&bytes);
            bytes.truncate(at);
            let _ = Packet::parse(&bytes);
        }
    }
}
