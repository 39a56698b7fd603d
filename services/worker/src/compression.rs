//! Compression formats, recognized by their first bytes.

mod magic;
pub(crate) mod members;
pub(crate) mod window;

use std::path::Path;

use members::{File, Members};

/// Bytes at the beginning of a file that are needed to recognize its format and the window of its first stream.
pub(crate) const HEAD: usize = 64;

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
    pub(crate) fn decompress(self, file: File, limit: u64) -> Members {
        Members::new(self, file, limit)
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
    use tokio::io::AsyncWriteExt;

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

    /// Decompresses a file that arrives in pieces of 3 bytes. Returns the content, and the number
    /// of bytes behind it.
    async fn both(format: Compression, packed: Vec<u8>) -> std::io::Result<(Vec<u8>, u64)> {
        let pieces = tokio::io::BufReader::with_capacity(3, std::io::Cursor::new(packed));
        let mut unpacked = format.decompress(Box::pin(pieces), 128 << 20);
        let (mut content, mut space) = (Vec::new(), [0; 999]);
        loop {
            match unpacked.read(&mut space).await? {
                0 => return Ok((content, unpacked.trailing_bytes())),
                read => content.extend_from_slice(&space[..read]),
            }
        }
    }

    async fn unpacked(format: Compression, packed: Vec<u8>) -> std::io::Result<Vec<u8>> {
        Ok(both(format, packed).await?.0)
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

    #[tokio::test]
    async fn what_begins_no_stream_is_not_content() {
        let long = content();
        for format in ALL {
            for behind in
                [&[0; 512][..], b"\n", b"{\"metadata_version\": \"1.1\"}", &[0xff; 9], &long]
            {
                let mut file = packed(format, b"image").await;
                file.extend_from_slice(behind);
                let (content, trailing) = both(format, file).await.unwrap();
                assert_eq!(
                    (content.as_slice(), trailing),
                    (&b"image"[..], behind.len() as u64),
                    "{format:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn zeroes_between_streams_are_padding() {
        for format in ALL {
            let mut file = packed(format, b"first ").await;
            file.extend([0; 8]);
            file.extend(packed(format, b"second").await);
            assert_eq!(
                both(format, file).await.unwrap(),
                (b"first second".to_vec(), 0),
                "{format:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_stream_with_a_damaged_beginning_is_not_left_out() {
        for format in ALL {
            let length = packed(format, &content()).await.len();
            for at in [0, 1, 2] {
                let mut two = packed(format, &content()).await;
                two.extend(packed(format, &content()).await);
                two[length + at] ^= 0x40;
                assert!(unpacked(format, two).await.is_err(), "{format:?} byte {at} of the second");
            }
        }
    }

    #[tokio::test]
    async fn a_stream_behind_a_damaged_one_is_not_left_out() {
        for format in ALL {
            let first = packed(format, b"first").await;
            let mut file = [&first[..], b"damage", &first].concat();
            assert!(unpacked(format, file.clone()).await.is_err(), "{format:?}");
            file.truncate(first.len() + 6);
            assert!(unpacked(format, file).await.is_ok(), "{format:?}");
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
