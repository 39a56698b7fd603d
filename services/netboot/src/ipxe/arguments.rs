//! The kernel's command line. `docs/reference/boot-scripts.md` lists the arguments.

use super::{BadWord, Error, check_word};

/// Maximum length of a command line on x86 and arm64 (`COMMAND_LINE_SIZE`), in octets, without its NUL.
const MAX_COMMAND_LINE_BYTES: usize = 2047;
/// The image's name, which precedes the arguments on UEFI. It is counted on BIOS too, so that a command line that fits one
/// firmware fits the other.
const IMAGE: &str = "kernel";

/// The argument that names the downloaded image to use as initramfs.
const INITRD: &str = "initrd=initrd";
/// Initial capacity: the usual length of a command line, in octets.
const USUAL_BYTES: usize = 1024;

/// Validated kernel arguments in order. If a key occurs twice, the worker uses the last value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    line: String,
    /// Words of a record that were left out, since a script cannot contain them. They are no error: a typing error in a
    /// record must not prevent a boot.
    pub left_out: Vec<BadWord>,
}

impl Default for Arguments {
    /// Returns a command line with the argument that every in-memory environment needs.
    fn default() -> Self {
        let mut line = String::with_capacity(USUAL_BYTES);
        line.push_str(INITRD);
        Self { line, left_out: Vec::new() }
    }
}

impl Arguments {
    /// Adds `key=value`, unless the value is empty. It is an error if a script cannot contain the value: no record sets it.
    pub fn set(&mut self, key: &'static str, value: &str) -> Result<(), Error> {
        if value.is_empty() {
            return Ok(());
        }
        self.line.push(' ');
        let start = self.line.len();
        self.line.extend([key, "=", value]);
        let (_before, word) = self.line.split_at(start);
        check_word(word).map(drop).map_err(|bad| Error::Value(key, bad))
    }

    /// Adds the words of `list`. Words that a script cannot contain are left out.
    pub fn extend(&mut self, list: &str) {
        for word in list.split_whitespace() {
            match check_word(word) {
                Ok(word) => self.line.extend([" ", word]),
                Err(bad) => self.left_out.push(bad),
            }
        }
    }

    /// Returns the line without `initrd=`, for an image whose own boot menu names the initramfs.
    pub fn without_initrd(&self) -> &str {
        self.line.strip_prefix(INITRD).map_or(&*self.line, str::trim_start)
    }

    /// Returns the line for the script.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns an error if a kernel would silently truncate the line.
    pub fn check_length(&self) -> Result<(), Error> {
        let length = IMAGE.len() + 1 + self.line.len();
        if length > MAX_COMMAND_LINE_BYTES { Err(Error::CommandLine(length)) } else { Ok(()) }
    }
}
