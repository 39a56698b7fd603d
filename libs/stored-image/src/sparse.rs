//! Encoding of files with holes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::encoder::{EncodedImage, Encoder, EncoderSettings};
use crate::error::Error;

/// Operation that errors of the file name.
const READING: &str = "reading the raw disk";

/// Encodes the first `size_bytes` bytes of the raw disk `file`. Calls `progress` with the number of
/// raw bytes so far after each block.
///
/// Blocks in holes are not read. The position of the file is not preserved. The file must not
/// change meanwhile.
pub fn store(
    file: &File,
    size_bytes: u64,
    out: impl Write,
    settings: &EncoderSettings,
    mut progress: impl FnMut(u64),
) -> Result<EncodedImage, Error> {
    // A length from the metadata would be zero for a block device.
    let length = seek(file, SeekFrom::End(0)).map_err(|errno| Error::io(READING)(errno.into()))?;
    if length < size_bytes {
        let problem = "shorter than the declared size";
        return Err(Error::Size { what: "raw disk", problem, bytes: length });
    }
    let mut encoder = Encoder::start(out, settings)?;
    let mut holes = Holes { file, data: 0 };
    let mut buffer = vec![0; settings.block_bytes as usize];
    let mut at = 0;
    while at < size_bytes {
        let end = size_bytes.min(at + u64::from(settings.block_bytes));
        if holes.contains(at, end).map_err(Error::io(READING))? {
            encoder.append_zeros(end - at)?;
        } else {
            buffer.resize(usize::try_from(end - at).unwrap_or(buffer.len()), 0);
            file.read_exact_at(&mut buffer, at).map_err(Error::io(READING))?;
            encoder.append(&buffer)?;
        }
        at = end;
        progress(at);
    }
    encoder.finish()
}

/// Finds the holes of a file, from its beginning to its end.
struct Holes<'a> {
    file: &'a File,
    /// Offset of the next data. All before it was looked at, or is a hole.
    data: u64,
}

impl Holes<'_> {
    /// True if the bytes from `begin` to `end` are in a hole. A file system that cannot tell has no
    /// holes.
    fn contains(&mut self, begin: u64, end: u64) -> io::Result<bool> {
        if self.data <= begin {
            self.data = match seek(self.file, SeekFrom::Data(begin)) {
                Ok(data) => data,
                Err(Errno::NXIO) => u64::MAX, // no data up to the end of the file
                Err(Errno::INVAL | Errno::OPNOTSUPP) => begin,
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(self.data >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::MIN_BLOCK_BYTES;
    use crate::samples::{self, BLOCK};

    fn file_of(pieces: &[(usize, Vec<u8>)], length: usize) -> (File, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        let mut raw = vec![0; length];
        file.set_len(length as u64).unwrap();
        for (at, piece) in pieces {
            file.write_all_at(piece, *at as u64).unwrap();
            raw[*at..*at + piece.len()].copy_from_slice(piece);
        }
        (file, raw)
    }

    #[test]
    fn a_file_with_holes_is_stored_like_its_bytes() {
        let pieces = [
            (3 * BLOCK + 5, vec![1; 10]),
            (5 * BLOCK, samples::noise(1, 2 * BLOCK)),
            (20 * BLOCK - 1, vec![2; 2]),
        ];
        let (file, raw) = file_of(&pieces, 30 * BLOCK + 77);
        let (mut stored, mut seen) = (Vec::new(), Vec::new());
        let (settings, size) = (samples::settings(), raw.len() as u64);
        let image = store(&file, size, &mut stored, &settings, |at| seen.push(at)).unwrap();
        assert_eq!((stored, image.map), samples::encode(&raw));
        assert_eq!(image.used_bytes, 5 * BLOCK as u64);
        assert_eq!(seen.len(), 31);
        assert_eq!(seen[1], 2 * BLOCK as u64);
        assert_eq!(*seen.last().unwrap(), size);
    }

    #[test]
    fn holes_are_found() {
        let (file, _) = file_of(&[(8 * BLOCK, vec![1; BLOCK])], 32 * BLOCK);
        let mut holes = Holes { file: &file, data: 0 };
        let block = u64::from(MIN_BLOCK_BYTES);
        let mut is_hole = |index| holes.contains(index * block, (index + 1) * block).unwrap();
        let found: Vec<u64> = (0..32).filter(|index| !is_hole(*index)).collect();
        assert_eq!(found, [8]);
    }

    #[test]
    fn a_file_shorter_than_its_size_is_refused() {
        let (file, _) = file_of(&[], 100);
        let error = store(&file, 101, io::sink(), &samples::settings(), |_| ()).unwrap_err();
        let expected = "raw disk: size: shorter than the declared size: 100 bytes";
        assert_eq!(error.to_string(), expected);
    }
}
