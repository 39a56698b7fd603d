//! The kernel's command line, word by word; `docs/reference/boot-scripts.md` lists the arguments.

use super::{BadWord, Error, check_word};

/// The longest command line that x86's boot protocol carries, in octets, without its NUL; arm64 kernels read as much.
const MAX_COMMAND_LINE_BYTES: usize = 2047;
/// The image's name, which UEFI puts before the arguments. Counted everywhere, so that a list that fits one firmware fits the
/// other.
const IMAGE: &str = "kernel";

/// The fetched image that is the initramfs.
const INITRD: &str = "initrd=initrd";
/// Octets of a usual command line.
const USUAL_BYTES: usize = 1024;

/// Checked kernel arguments in order; of two with the same key the worker takes the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    line: String,
    /// Additions that were left out, since they cannot stand in a script: a typing error in a record must not keep a machine
    /// from booting.
    pub left_out: Vec<BadWord>,
}

impl Default for Arguments {
    /// Returns the argument that every environment has.
    fn default() -> Self {
        let mut line = String::with_capacity(USUAL_BYTES);
        line.push_str(INITRD);
        Self { line, left_out: Vec::new() }
    }
}

impl Arguments {
    /// Adds `key=value`, unless the value is empty. It must be valid: it is our own.
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

    /// Adds the words of `list`. Words that cannot stand in a script are left out.
    pub fn extend(&mut self, list: &str) {
        for word in list.split_whitespace() {
            match check_word(word) {
                Ok(word) => self.line.extend([" ", word]),
                Err(bad) => self.left_out.push(bad),
            }
        }
    }

    /// Returns the line without the initramfs, which an image's own boot menu names.
    pub fn without_initrd(&self) -> &str {
        self.line.strip_prefix(INITRD).map_or(&*self.line, str::trim_start)
    }

    /// Returns the line as it stands in the script.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Refuses a line that a kernel would silently cut.
    pub fn check_length(&self) -> Result<(), Error> {
        let length = IMAGE.len() + 1 + self.line.len();
        if length > MAX_COMMAND_LINE_BYTES { Err(Error::CommandLine(length)) } else { Ok(()) }
    }
}
