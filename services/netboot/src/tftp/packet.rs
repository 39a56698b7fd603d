//! TFTP packets (RFC 1350, section 5; RFC 2347).

const READ: u16 = 1;
const WRITE: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OPTION_ACK: u16 = 6;

/// A request's options, or those acknowledged: names and values in order.
pub type Options = Vec<(Vec<u8>, Vec<u8>)>;

/// What a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// The file's name as sent, in no encoding in particular.
    pub name: Vec<u8>,
    /// `octet`, `netascii` or `mail`, in any case.
    pub mode: Vec<u8>,
    /// RFC 2347.
    pub options: Options,
}

/// The error codes of RFC 1350 and 2347 that say something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u16);

impl Code {
    /// Nothing better fits; see the text.
    pub const UNDEFINED: Self = Self(0);
    /// There is no such file.
    pub const NOT_FOUND: Self = Self(1);
    /// This client may not.
    pub const ACCESS_VIOLATION: Self = Self(2);
    /// Not a packet that belongs here.
    pub const ILLEGAL_OPERATION: Self = Self(4);
    /// The port talks to somebody else.
    pub const UNKNOWN_TRANSFER: Self = Self(5);
    /// A client does not want the transfer as acknowledged.
    pub const OPTIONS_REFUSED: Self = Self(8);
}

/// A TFTP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Asks to read a file.
    Read(Request),
    /// Asks to write one.
    Write(Request),
    /// Part of a file.
    Data {
        /// Its number, counted from 1 and rolling over.
        block: u16,
        /// The part.
        data: Vec<u8>,
    },
    /// Everything up to this block has come.
    Ack(u16),
    /// The transfer is over.
    Error {
        /// Why, for programs.
        code: Code,
        /// Why, for people.
        text: Vec<u8>,
    },
    /// The options as they hold.
    OptionAck(Options),
}

/// Not a TFTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a TFTP packet")]
pub struct NotTftp;

impl Packet {
    /// Reads a packet. Half an option at a request's end is as good as none.
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
                Self::Error { code: Code(code), text: text.into() }
            }
            OPTION_ACK => Self::OptionAck(options(&mut rest)),
            _ => return Err(NotTftp),
        })
    }

    /// The packet's octets. A NUL inside a text ends it.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Read(request) => text(READ, [&request.name, &request.mode], &request.options),
            Self::Write(request) => text(WRITE, [&request.name, &request.mode], &request.options),
            Self::Data { block, data } => [&data_head(*block)[..], data].concat(),
            Self::Ack(block) => [ACK.to_be_bytes(), block.to_be_bytes()].concat(),
            Self::Error { code, text } => {
                let head = [ERROR.to_be_bytes(), code.0.to_be_bytes()].concat();
                [head, terminated(text)].concat()
            }
            Self::OptionAck(options) => text(OPTION_ACK, [], options),
        }
    }

    /// An error packet.
    pub fn error(code: Code, text: &str) -> Self {
        Self::Error { code, text: text.into() }
    }
}

/// What a DATA packet has before its data.
pub(super) fn data_head(block: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (DATA.to_be_bytes(), block.to_be_bytes());
    [a, b, c, d]
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), NotTftp> {
    let (number, rest) = bytes.split_first_chunk().ok_or(NotTftp)?;
    Ok((u16::from_be_bytes(*number), rest))
}

fn request(mut rest: &[u8]) -> Result<Request, NotTftp> {
    let name = string(&mut rest).ok_or(NotTftp)?;
    let mode = string(&mut rest).ok_or(NotTftp)?;
    Ok(Request { name, mode, options: options(&mut rest) })
}

fn options(rest: &mut &[u8]) -> Options {
    std::iter::from_fn(|| Some((string(rest)?, string(rest)?))).collect()
}

/// Takes a text and its NUL.
fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (text, tail) = rest.split_at_checked(end)?;
    *rest = tail.get(1..)?;
    Some(text.into())
}

fn terminated(text: &[u8]) -> Vec<u8> {
    text.iter().copied().take_while(|byte| *byte != 0).chain([0]).collect()
}

fn text<const N: usize>(opcode: u16, texts: [&Vec<u8>; N], options: &Options) -> Vec<u8> {
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
    fn a_request_reads_as_ovmf_sends_it() {
        let bytes = b"\x00\x01snponly.efi\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0";
        let option = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let options =
            vec![option(b"tsize", b"0"), option(b"blksize", b"1468"), option(b"windowsize", b"4")];
        let request = Request { name: b"snponly.efi".into(), mode: b"octet".into(), options };
        assert_eq!(Packet::parse(bytes), Ok(Packet::Read(request)));
    }

    #[test]
    fn a_name_without_its_end_is_no_request() {
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
            (text(), text(), options()).prop_map(|(name, mode, options)| Request {
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
                .prop_map(|(code, text)| Packet::Error { code: Code(code), text }),
            options().prop_map(Packet::OptionAck),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(packet in packet()) {
            prop_assert_eq!(Packet::parse(&packet.encode()), Ok(packet));
        }

        #[test]
        fn no_octets_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Packet::parse(&bytes);
        }

        #[test]
        fn no_cut_or_changed_packet_makes_the_reader_panic(packet in packet(), at: prop::sample::Index, byte: u8) {
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
