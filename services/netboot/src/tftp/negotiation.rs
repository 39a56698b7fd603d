//! What a request's options come to (RFC 2347, 2348, 2349, 7440).

use std::time::Duration;

use super::packet::{Options, Request};

/// Without options: RFC 1350's block, one at a time.
const BLOCK: u16 = 512;
/// The smallest block RFC 2348 allows.
const SMALLEST: u16 = 8;
/// The block sizes it allows.
const BLOCKS: std::ops::RangeInclusive<u64> = SMALLEST as u64..=65464;
/// The seconds RFC 2349 allows.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=255;

/// What the server is willing to grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The largest block, in octets. 1428 passes every tunnel; 1468 fills an Ethernet frame.
    pub block: u16,
    /// The most blocks sent without an acknowledgement.
    pub window: u16,
    /// The most octets so sent, which bounds what a transfer keeps in memory.
    pub window_octets: usize,
}

impl Default for Offer {
    fn default() -> Self {
        Self { block: 1428, window: 16, window_octets: 24 * 1024 }
    }
}

/// How the file's octets go into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As they are.
    Octet,
    /// LF becomes CR LF, CR becomes CR NUL (RFC 764).
    Netascii,
}

impl Mode {
    /// The mode a request names; none for `mail` and what nobody has heard of.
    pub fn of(request: &Request) -> Option<Self> {
        if request.mode.eq_ignore_ascii_case(b"octet") {
            Some(Self::Octet)
        } else {
            request.mode.eq_ignore_ascii_case(b"netascii").then_some(Self::Netascii)
        }
    }
}

/// A transfer as agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Octets of every block but the last.
    pub block: u16,
    /// Blocks sent without an acknowledgement.
    pub window: u16,
    /// The client's own time before something is sent again.
    pub timeout: Option<Duration>,
    /// What is acknowledged, the names as the client spells them. Empty: nothing, and the first block is the answer.
    pub granted: Options,
}

impl Terms {
    /// What comes of `options`, for a file of `size` octets; none where its size on the wire is not known. What is not
    /// understood, or out of range, is left out, and of two options with one name the first counts.
    pub fn agree(options: &Options, size: Option<u64>, offer: &Offer) -> Self {
        let mut terms = Self { block: BLOCK, window: 1, timeout: None, granted: Options::new() };
        for (at, (name, value)) in options.iter().enumerate() {
            let mut earlier = options.iter().take(at);
            let repeated = earlier.any(|(earlier, _)| earlier.eq_ignore_ascii_case(name));
            let Some(asked) = number(value).filter(|_| !repeated) else { continue };
            let granted = terms.grant(&name.to_ascii_lowercase(), asked, size, offer);
            if let Some(granted) = granted {
                terms.granted.push((name.clone(), granted.to_string().into_bytes()));
            }
        }
        let fitting = (offer.window_octets / usize::from(terms.block)).max(1);
        terms.shrink_window(u16::try_from(fitting).unwrap_or(u16::MAX));
        terms
    }

    /// Applies one option and returns the value acknowledged.
    fn grant(&mut self, name: &[u8], asked: u64, size: Option<u64>, offer: &Offer) -> Option<u64> {
        match name {
            b"blksize" if BLOCKS.contains(&asked) => {
                self.block =
                    u16::try_from(asked).unwrap_or(u16::MAX).min(offer.block.max(SMALLEST));
                Some(self.block.into())
            }
            b"windowsize" if asked >= 1 && asked <= u16::MAX.into() => {
                self.window = u16::try_from(asked).unwrap_or(u16::MAX).min(offer.window.max(1));
                Some(self.window.into())
            }
            b"timeout" if SECONDS.contains(&asked) => {
                self.timeout = Some(Duration::from_secs(asked));
                Some(asked)
            }
            b"tsize" if asked == 0 => size,
            _ => None,
        }
    }

    /// The window depends on the block, and the options may come in any order.
    fn shrink_window(&mut self, most: u16) {
        if self.window <= most {
            return;
        }
        self.window = most;
        for (name, value) in &mut self.granted {
            if name.eq_ignore_ascii_case(b"windowsize") {
                *value = most.to_string().into_bytes();
            }
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

    fn agree(options: &[(&str, &str)]) -> Terms {
        let options = options
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        Terms::agree(&options.collect(), Some(173_792), &Offer::default())
    }

    fn granted(options: &[(&str, &str)]) -> Vec<(String, String)> {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        agree(options).granted.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn what_ovmf_asks_is_granted_within_our_limits() {
        let asked = [("tsize", "0"), ("blksize", "1468"), ("windowsize", "4")];
        let expected = [("tsize", "173792"), ("blksize", "1428"), ("windowsize", "4")];
        assert_eq!(granted(&asked), expected.map(|(name, value)| (name.into(), value.into())));
        let terms = agree(&asked);
        assert_eq!((terms.block, terms.window), (1428, 4));
    }

    #[test]
    fn without_options_it_is_the_protocol_of_1992() {
        assert_eq!(agree(&[]), Terms { block: 512, window: 1, timeout: None, granted: vec![] });
    }

    #[test]
    fn what_is_unknown_or_out_of_range_is_left_out() {
        let asked = [
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
        assert_eq!(granted(&asked), []);
    }

    #[test]
    fn a_small_block_is_never_answered_with_a_larger_one() {
        assert_eq!(agree(&[("blksize", "8")]).block, 8);
    }

    #[test]
    fn names_are_read_in_any_case_and_the_first_counts() {
        let expected: Vec<(String, String)> = vec![("BLKSIZE".into(), "1024".into())];
        assert_eq!(granted(&[("BLKSIZE", "1024"), ("blksize", "512")]), expected);
        assert_eq!(granted(&[("blksize", "7"), ("blksize", "512")]), [], "though it is refused");
    }

    #[test]
    fn the_clients_time_is_echoed_and_used() {
        assert_eq!(granted(&[("timeout", "6")]), [("timeout".to_owned(), "6".to_owned())]);
        assert_eq!(agree(&[("timeout", "6")]).timeout, Some(Duration::from_secs(6)));
    }

    #[test]
    fn a_window_of_large_blocks_is_no_larger_than_one_of_small_ones() {
        let offer = Offer { block: 65464, ..Offer::default() };
        let options =
            vec![(b"windowsize".to_vec(), b"16".to_vec()), (b"blksize".to_vec(), b"8192".to_vec())];
        let terms = Terms::agree(&options, None, &offer);
        assert_eq!((terms.block, terms.window), (8192, 3));
        assert_eq!(terms.granted.first().map(|(_, value)| value.as_slice()), Some(&b"3"[..]));
    }

    #[test]
    fn a_server_that_offers_nothing_still_serves() {
        let offer = Offer { block: 0, window: 0, window_octets: 0 };
        let options =
            vec![(b"windowsize".to_vec(), b"16".to_vec()), (b"blksize".to_vec(), b"512".to_vec())];
        let terms = Terms::agree(&options, None, &offer);
        assert_eq!((terms.block, terms.window), (8, 1));
    }
}
