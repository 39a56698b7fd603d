//! The transfer mode, and the negotiation of options (RFC 2347, 2348, 2349, 7440).

use std::time::Duration;

use crate::packet::{FileRequest, Options};

/// The block size of RFC 1350, used without the option.
const DEFAULT_BLOCK_BYTES: u16 = 512;
/// The largest block that is granted: it passes every tunnel. One of 1468 bytes would fill an Ethernet frame.
pub const MAX_BLOCK_BYTES: u16 = 1428;
/// The most blocks sent without an acknowledgement, which bounds the memory of a transfer.
pub const MAX_WINDOW_BLOCKS: u16 = 16;
/// The block sizes that RFC 2348 allows.
const VALID_BLOCK_BYTES: std::ops::RangeInclusive<u64> = 8..=65464;
/// The timeouts that RFC 2349 allows.
const VALID_TIMEOUT_SECONDS: std::ops::RangeInclusive<u64> = 1..=255;

/// The encoding of a file's bytes in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferMode {
    /// The bytes as they are.
    Octet,
    /// LF becomes CR LF, CR becomes CR NUL (RFC 764).
    Netascii,
}

impl TransferMode {
    /// Returns the mode that `request` names, or none for `mail` and unknown modes.
    pub fn of(request: &FileRequest) -> Option<Self> {
        if request.mode.eq_ignore_ascii_case(b"octet") {
            Some(Self::Octet)
        } else {
            request.mode.eq_ignore_ascii_case(b"netascii").then_some(Self::Netascii)
        }
    }
}

/// Appends `bytes` to `out` in netascii (RFC 764, the network virtual terminal). Each byte is encoded by itself, so a file
/// can be encoded in parts.
pub fn encode_netascii(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'\n' => out.extend_from_slice(b"\r\n"),
            b'\r' => out.extend_from_slice(b"\r\0"),
            other => out.push(*other),
        }
    }
}

/// The options that a transfer uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferOptions {
    /// Bytes of every block but the last.
    pub block_bytes: u16,
    /// Blocks sent without an acknowledgement.
    pub window_blocks: u16,
    /// The retransmission timeout that the client set.
    pub timeout: Option<Duration>,
    /// The options to acknowledge, with names as the client spells them. If empty, no acknowledgement is sent, and the first
    /// block is the response.
    pub acknowledged: Options,
}

impl TransferOptions {
    /// Negotiates the `requested` options for a file of `size` bytes; the size is none if it is not known on the wire. Options
    /// that are unknown or out of range are left out. Of two options with one name the first counts.
    pub fn negotiate(requested: &Options, size: Option<u64>) -> Self {
        let mut options = Self {
            block_bytes: DEFAULT_BLOCK_BYTES,
            window_blocks: 1,
            timeout: None,
            acknowledged: Options::new(),
        };
        for (position, (name, value)) in requested.iter().enumerate() {
            let mut earlier = requested.iter().take(position);
            let repeated = earlier.any(|(earlier, _)| earlier.eq_ignore_ascii_case(name));
            let Some(value) = number(value).filter(|_| !repeated) else { continue };
            if let Some(granted) = options.grant(&name.to_ascii_lowercase(), value, size) {
                options.acknowledged.push((name.clone(), granted.to_string().into_bytes()));
            }
        }
        options
    }

    /// Applies one option and returns the value to acknowledge.
    fn grant(&mut self, name: &[u8], value: u64, size: Option<u64>) -> Option<u64> {
        let at_most = |limit: u16| u16::try_from(value).unwrap_or(u16::MAX).min(limit);
        match name {
            b"blksize" if VALID_BLOCK_BYTES.contains(&value) => {
                self.block_bytes = at_most(MAX_BLOCK_BYTES);
                Some(self.block_bytes.into())
            }
            b"windowsize" if value >= 1 && value <= u16::MAX.into() => {
                self.window_blocks = at_most(MAX_WINDOW_BLOCKS);
                Some(self.window_blocks.into())
            }
            b"timeout" if VALID_TIMEOUT_SECONDS.contains(&value) => {
                self.timeout = Some(Duration::from_secs(value));
                Some(value)
            }
            b"tsize" if value == 0 => size,
            _ => None,
        }
    }
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit).then_some(value)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(options: &[(&str, &str)]) -> Options {
        options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn negotiate(requested: &[(&str, &str)]) -> TransferOptions {
        TransferOptions::negotiate(&options(requested), Some(173_792))
    }

    #[test]
    fn the_options_of_ovmf_are_granted_within_the_limits() {
        let negotiated = negotiate(&[("tsize", "0"), ("blksize", "1468"), ("windowsize", "4")]);
        let expected = [("tsize", "173792"), ("blksize", "1428"), ("windowsize", "4")];
        assert_eq!(negotiated.acknowledged, options(&expected));
        assert_eq!((negotiated.block_bytes, negotiated.window_blocks), (1428, 4));
    }

    #[test]
    fn without_options_the_defaults_of_rfc_1350_apply() {
        let negotiated = negotiate(&[]);
        assert_eq!((negotiated.block_bytes, negotiated.window_blocks), (512, 1));
        assert_eq!((negotiated.timeout, negotiated.acknowledged), (None, vec![]));
    }

    #[test]
    fn options_that_are_unknown_or_out_of_range_are_left_out() {
        let requested = [
            ("utimeout", "100"),
            ("blksize", "7"),
            ("blksize", "65465"),
            ("windowsize", "0"),
            ("windowsize", "65536"),
            ("timeout", "256"),
            ("timeout", "+1"),
            ("tsize", "1"),
            ("tsize", ""),
        ];
        assert_eq!(negotiate(&requested).acknowledged, []);
    }

    #[test]
    fn a_small_block_is_not_enlarged() {
        assert_eq!(negotiate(&[("blksize", "8")]).block_bytes, 8);
    }

    #[test]
    fn names_are_read_in_any_case_and_the_first_of_a_name_counts() {
        let first = negotiate(&[("BLKSIZE", "1024"), ("blksize", "512")]);
        assert_eq!(first.acknowledged, options(&[("BLKSIZE", "1024")]));
        let refused = negotiate(&[("blksize", "7"), ("blksize", "512")]);
        assert_eq!(refused.acknowledged, [], "the first counts though it is refused");
    }

    #[test]
    fn the_clients_timeout_is_acknowledged_and_used() {
        let negotiated = negotiate(&[("timeout", "6")]);
        assert_eq!(negotiated.acknowledged, options(&[("timeout", "6")]));
        assert_eq!(negotiated.timeout, Some(Duration::from_secs(6)));
    }

    #[test]
    fn a_window_has_no_more_blocks_than_the_limit() {
        let negotiated = negotiate(&[("windowsize", "64"), ("blksize", "8192")]);
        assert_eq!((negotiated.block_bytes, negotiated.window_blocks), (1428, 16));
        assert_eq!(negotiated.acknowledged, options(&[("windowsize", "16"), ("blksize", "1428")]));
    }

    #[test]
    fn netascii_encodes_line_ends() {
        let mut encoded = Vec::new();
        encode_netascii(b"ab\nc\rd", &mut encoded);
        assert_eq!(encoded, b"ab\r\nc\r\0d");
    }
}
