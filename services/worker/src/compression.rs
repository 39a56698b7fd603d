//! Compression formats, recognized by their first bytes.

pub(crate) mod window;

use std::path::Path;
use std::pin::Pin;

use async_compression::tokio::bufread::{BzDecoder, GzipDecoder, XzDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use tokio::io::{AsyncBufRead, AsyncRead};

/// Bytes at the beginning of a file that are needed to recognize its format and the window of its first stream.
pub(crate) const HEAD: usize = 64;

/// Memory in bytes that an xz stream may need besides its window.
const XZ_EXTRA_BYTES: u64 = 2 << 20;

/// A compression format. In every format, a file may consist of several concatenated streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// RFC 1952.
    Gzip,
    /// The .xz file format 1.2.
    Xz,
    /// RFC 8878.
    Zstd,
    /// bzip2 0.1 and later.
    Bzip2,
}

impl Compression {
    /// Returns the format of a file that begins with `head`, if it is a supported one.
    pub(crate) fn of_magic(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // RFC 8878 §3.1.2: a skippable frame may come first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            // The next byte begins the magic of a block, or of the footer of an empty file. No boot sector begins like this.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Returns the format for the file extension of `path`.
    pub(crate) fn of_extension(path: &str) -> Option<Self> {
        match Path::new(path).extension()?.to_str()? {
            "gz" => Some(Self::Gzip),
            "xz" => Some(Self::Xz),
            "zs" | "zst" => Some(Self::Zstd),
            "bz2" | "bzip2" => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Returns the window in bytes of a file that begins with `head`, for formats with a variable window.
    pub(crate) fn window(self, head: &[u8]) -> Option<u64> {
        match self {
            Self::Xz => window::of_xz(head),
            Self::Zstd => window::of_zstd(head),
            Self::Gzip | Self::Bzip2 => None,
        }
    }

    /// Decompresses `file`. Reading fails if the file ends in the middle of a stream, and if a window is larger than `limit`
    /// bytes. `limit` is a power of two.
    pub(crate) fn decompress<R: AsyncBufRead + Send + 'static>(
        self,
        file: R,
        limit: u64,
    ) -> Pin<Box<dyn AsyncRead + Send>> {
        macro_rules! all_members {
            ($decoder:expr) => {{
                let mut decoder = $decoder;
                decoder.multiple_members(true);
                Box::pin(decoder)
            }};
        }
        match self {
            Self::Gzip => all_members!(GzipDecoder::new(file)),
            Self::Xz => all_members!(XzDecoder::with_mem_limit(file, limit + XZ_EXTRA_BYTES)),
            Self::Zstd => {
                let window = DParameter::window_log_max(limit.ilog2());
                all_members!(ZstdDecoder::with_params(file, &[window]))
            }
            Self::Bzip2 => all_members!(BzDecoder::new(file)),
        }
    }

    /// Returns the usual name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        }
    }
}

#[cfg(test)]
mod tests {
    use async_compression::tokio::write::{BzEncoder, GzipEncoder, XzEncoder, ZstdEncoder};
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const ALL: [Compression; 4] =
        [Compression::Gzip, Compression::Xz, Compression::Zstd, Compression::Bzip2];

    async fn packed(format: Compression, content: &[u8]) -> Vec<u8> {
        macro_rules! pack {
            ($encoder:ident) => {{
                let mut encoder = $encoder::new(Vec::new());
                encoder.write_all(content).await.unwrap();
                encoder.shutdown().await.unwrap();
                encoder.into_inner()
            }};
        }
        match format {
            Compression::Gzip => pack!(GzipEncoder),
            Compression::Xz => pack!(XzEncoder),
            Compression::Zstd => pack!(ZstdEncoder),
            Compression::Bzip2 => pack!(BzEncoder),
        }
    }

    async fn unpacked(format: Compression, packed: Vec<u8>) -> std::io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let mut unpacked = format.decompress(std::io::Cursor::new(packed), 128 << 20);
        unpacked.read_to_end(&mut content).await.map(|_| content)
    }

    fn content() -> Vec<u8> {
        (0..20_000_u32)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> (n % 13)).to_le_bytes())
            .collect()
    }

    #[tokio::test]
    async fn concatenated_streams_are_one_image() {
        for format in ALL {
            let mut twice = packed(format, b"first ").await;
            assert_eq!(Compression::of_magic(&twice), Some(format));
            twice.extend(packed(format, b"second").await);
            assert_eq!(unpacked(format, twice).await.unwrap(), b"first second", "{format:?}");
        }
    }

    #[tokio::test]
    async fn an_end_in_the_middle_of_a_stream_is_an_error() {
        for format in ALL {
            let whole = packed(format, &content()).await;
            for missing in [1, 2, 4, 7, 8, 9, 12, whole.len() / 2, whole.len() - 5] {
                let cut = whole[..whole.len() - missing].to_vec();
                assert!(
                    unpacked(format, cut).await.is_err(),
                    "{format:?} without its last {missing} bytes"
                );
            }
        }
    }

    #[tokio::test]
    async fn an_end_in_the_middle_of_the_second_stream_is_an_error() {
        for format in ALL {
            let mut two = packed(format, &content()).await;
            let first = two.len();
            two.extend(packed(format, &content()).await);
            for length in [first + 1, first + 5, first + 11, two.len() - 1] {
                let cut = two[..length].to_vec();
                assert!(
                    unpacked(format, cut).await.is_err(),
                    "{format:?} {} bytes into the second",
                    length - first
                );
            }
        }
    }

    #[test]
    fn extensions_are_those_of_image2disk() {
        for (path, format) in
            [("/a.img.gz", "gzip"), ("/a.zs", "zstd"), ("/a.zst", "zstd"), ("/b.bzip2", "bzip2")]
        {
            assert_eq!(
                Compression::of_extension(path).map(Compression::name),
                Some(format),
                "{path}"
            );
        }
        assert_eq!(Compression::of_extension("/os.img"), None);
        assert_eq!(Compression::of_extension("/gz"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_decompression_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..256),
            which in 0..4_usize,
        ) {
            let magic: [&[u8]; 4] = [b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh91AY"];
            bytes.splice(0..0, magic[which].iter().copied());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _either = runtime.block_on(unpacked(ALL[which], bytes));
        }
    }
}
