//! Reads archives: first all of it is checked, then files are read from it.

use std::collections::HashMap;
use std::io::{Read, Seek, Write};

use image_signature::{KeyId, MAX_SIGNATURE_BYTES, PublicKeys};

use crate::digest::{Digest, Sum};
use crate::error::{Error, refused};
use crate::members::{Member, Members, content};
use crate::{COMMENT, LIST, SIGNATURE, list};

/// Maximum size of the list in bytes.
const MAX_LIST_BYTES: u64 = 4 << 20;

/// Who is trusted to have made an archive.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The holders of these keys.
    Keys(PublicKeys),
    /// Everybody: a signature is not needed, and not verified.
    Anybody,
}

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Where its content begins in the archive.
    pub offset: u64,
    /// Its digest.
    pub sha256: Digest,
}

/// A checked archive.
#[derive(Debug)]
pub struct Archive<R> {
    source: R,
    files: Vec<ArchivedFile>,
    signer: Option<KeyId>,
}

impl<R: Read + Seek> Archive<R> {
    /// Checks the whole archive: the signature, then that its files are those of the list, with the
    /// listed content. `progress` gets the number of bytes of each part that was read.
    pub fn open(
        mut source: R,
        trust: &Trust,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, Error> {
        let mut members = Members::new(&mut source);
        let first = members.next()?.filter(|first| first.name == LIST).ok_or(Error::NoList)?;
        let text = text(&mut members, &first, MAX_LIST_BYTES)?;
        let second = members.next()?;
        let (signer, mut next) = match (trust, second) {
            (Trust::Keys(keys), Some(second)) if second.name == SIGNATURE => {
                (Some(verify(keys, &text, &mut members, &second)?), members.next()?)
            }
            (Trust::Keys(_), _) => return Err(Error::NotSigned),
            (Trust::Anybody, Some(second)) if second.name == SIGNATURE => (None, members.next()?),
            (Trust::Anybody, second) => (None, second),
        };
        let mut missing: HashMap<_, _> = list::parse(&text)?.into_iter().collect();
        let mut files = Vec::new();
        while let Some(member) = next {
            let listed = missing.remove(&member.name);
            let listed =
                listed.ok_or_else(|| refused(&member.name, "not in the list, or twice"))?;
            files.push(checked(&mut members, member, listed, progress)?);
            next = members.next()?;
        }
        // The same one each time.
        match missing.keys().min() {
            Some(name) => Err(refused(name, "missing: only the list has it")),
            None => Ok(Self { source, files, signer }),
        }
    }

    /// Returns the files, in the order in which the archive has them.
    pub fn files(&self) -> &[ArchivedFile] {
        &self.files
    }

    /// Returns the key that signed the archive. None if nobody had to.
    pub fn signer(&self) -> Option<KeyId> {
        self.signer
    }

    /// Writes the content of `file` to `to`. An error at the end says that the archive was changed
    /// since it was checked: then `to` is to be discarded.
    pub fn copy(&mut self, file: &ArchivedFile, to: &mut dyn Write) -> Result<(), Error> {
        let mut sum = Sum::default();
        let mut each = |part: &[u8]| {
            sum.update(part);
            let name = || file.name.clone();
            to.write_all(part).map_err(|source| Error::Copy { name: name(), source })
        };
        content(&mut self.source, file.offset, file.bytes, &mut each)?;
        same(&file.name, sum.finish(), file.sha256)
    }

    /// Returns the content of `file`, of at most `max` bytes.
    pub fn read(&mut self, file: &ArchivedFile, max: u64) -> Result<Vec<u8>, Error> {
        check_size(&file.name, file.bytes, max)?;
        let mut read = Vec::new();
        self.copy(file, &mut read)?;
        Ok(read)
    }
}

/// Verifies the signature of the list `text`, and returns its key.
fn verify<R: Read + Seek>(
    keys: &PublicKeys,
    list: &[u8],
    members: &mut Members<'_, R>,
    signature: &Member,
) -> Result<KeyId, Error> {
    let signature = text(members, signature, MAX_SIGNATURE_BYTES as u64)?;
    let signature = String::from_utf8(signature).map_err(|_| refused(SIGNATURE, "not text"))?;
    let (key, comment) = keys.verify_content(list, &signature)?;
    if comment == COMMENT { Ok(key) } else { Err(Error::OtherComment(comment)) }
}

/// Returns the content of `member`, of at most `max` bytes.
fn text<R: Read + Seek>(
    members: &mut Members<'_, R>,
    member: &Member,
    max: u64,
) -> Result<Vec<u8>, Error> {
    check_size(&member.name, member.bytes, max)?;
    let mut text = Vec::new();
    let mut each = |part: &[u8]| {
        text.extend_from_slice(part);
        Ok(())
    };
    members.content(member, &mut each)?;
    Ok(text)
}

/// Reads the content of `member`, which has the digest `listed`.
fn checked<R: Read + Seek>(
    members: &mut Members<'_, R>,
    member: Member,
    listed: Digest,
    progress: &mut dyn FnMut(u64),
) -> Result<ArchivedFile, Error> {
    let mut sum = Sum::default();
    let mut each = |part: &[u8]| {
        sum.update(part);
        progress(part.len() as u64);
        Ok(())
    };
    members.content(&member, &mut each)?;
    same(&member.name, sum.finish(), listed)?;
    let Member { name, bytes, offset } = member;
    Ok(ArchivedFile { name, bytes, offset, sha256: listed })
}

fn same(name: &str, found: Digest, listed: Digest) -> Result<(), Error> {
    match found == listed {
        true => Ok(()),
        false => Err(Error::Changed { name: name.to_owned(), found, listed }),
    }
}

fn check_size(name: &str, bytes: u64, max: u64) -> Result<(), Error> {
    match bytes <= max {
        true => Ok(()),
        false => Err(Error::TooLarge { name: name.to_owned(), bytes, max }),
    }
}
