//! Raw disks of images that QEMU reads: vmdk, vdi, vhd, vhdx, and qcow2 with rare features.
//!
//! ```text
//! qemu-img info ─▶ no other files, size ─▶ qemu-img map ─▶ all data in the file ─▶ qemu-img convert
//! ```
//!
//! QEMU is told the format and the driver of the file: it probes nothing, and takes no name for a
//! protocol (`nbd:…`, `json:…`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::format::Format;
use crate::refusal::Refusal;
use crate::source::Source;
use crate::sparse::{Budget, Scratch, new_file, writing};
use crate::text::{printable, quoted};

/// The program that reads the images, from the package qemu-utils.
pub(crate) const PROGRAM: &str = "/usr/bin/qemu-img";
/// Maximum length in bytes of the description of an image. Its longest part is a descriptor.
const MAX_INFO_BYTES: u64 = 4 << 20;
/// Maximum length in bytes of a line of the map.
const MAX_LINE_BYTES: u64 = 4096;
/// Bytes of an error that are read.
const MAX_ERROR_BYTES: u64 = 4096;
/// Members of the description that tell of other files.
const REFERENCES: [(&str, &str); 5] = [
    ("backing-filename", "backing file"),
    ("full-backing-filename", "backing file"),
    ("backing-image", "backing file"),
    ("data-file", "data file"),
    ("data-file-raw", "data file"),
];
/// Size of a sector, and of the unit of the room that a file takes, in bytes.
const SECTOR: u64 = 512;

/// The program, and a directory for its errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Qemu<'a> {
    pub(crate) program: &'a Path,
    pub(crate) work: &'a Path,
}

/// An image that QEMU reads.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    qemu: &'a Qemu<'a>,
    format: Format,
    source: &'a Source,
    /// Errors of the program. A file, since nobody would empty a second pipe.
    errors: Scratch,
}

impl<'a> Image<'a> {
    /// Takes `source` as an image of `format`.
    pub(crate) fn new(
        qemu: &'a Qemu<'a>,
        format: Format,
        source: &'a Source,
    ) -> Result<Self, Refusal> {
        if !qemu.program.is_file() {
            return Err(Refusal::MissingProgram { format });
        }
        let errors = Scratch::new(qemu.work.join(".qemu-img.errors"));
        // Once for all runs: a sandbox removes nothing.
        new_file(&errors.path).map_err(|error| writing(&errors.path, &error))?;
        Ok(Self { qemu, format, source, errors })
    }

    /// Writes the raw disk to a new file at `to`, and calls `progress` with the number of bytes of
    /// it that take room. Returns the size of the disk.
    pub(crate) fn convert(
        &self,
        budget: Budget,
        to: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, Refusal> {
        let bytes = self.size()?;
        budget.check_size("virtual size", bytes)?;
        self.check_map()?;
        // QEMU only writes into the file: its name is not parsed, and its length is exact.
        let raw = new_file(to).and_then(|file| file.set_len(bytes).map(|()| file));
        let raw = raw.map_err(|error| writing(to, &error))?;
        let mut command = self.command("convert");
        command.args(["-p", "-n", "--target-is-zero", "-S", "4k", "--target-image-opts"]);
        command.arg(self.options()).arg(options("raw", to));
        self.run(command, &mut |output| {
            let mut step = [0; 64];
            while output.read(&mut step).map_err(|error| self.failed(&error))? > 0 {
                let data = raw.metadata().map_err(|error| writing(to, &error))?.blocks() * SECTOR;
                budget.check_data(data)?;
                progress(data);
            }
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Returns the size of the disk if the image refers to no other file, and is not encrypted.
    fn size(&self) -> Result<u64, Refusal> {
        let mut command = self.command("info");
        command.arg("--output=json").arg(self.options());
        let mut text = Vec::new();
        self.run(command, &mut |output| {
            let read = output.take(MAX_INFO_BYTES).read_to_end(&mut text);
            read.map(drop).map_err(|error| self.failed(&error))
        })?;
        let info: Value = serde_json::from_slice(&text)
            .map_err(|error| self.damaged(format!("qemu-img info: {error}")))?;
        self.check_references(&info)?;
        let bytes = info.get("virtual-size").and_then(Value::as_u64).unwrap_or_default();
        match bytes {
            0 => Err(Refusal::Empty { wrapping: None }),
            bytes if !bytes.is_multiple_of(SECTOR) => {
                Err(self.damaged(format!("a disk of {bytes} bytes: no whole number of sectors")))
            }
            bytes => Ok(bytes),
        }
    }

    /// Returns an error if the description names a file that is not the source.
    fn check_references(&self, info: &Value) -> Result<(), Refusal> {
        let elsewhere = |what: &str, name: String| {
            Err(Refusal::RefersElsewhere { format: self.format, what: what.into(), name })
        };
        match info {
            Value::Object(members) => {
                for (key, value) in members {
                    let found = REFERENCES.iter().find(|(name, _)| name == key);
                    if let Some((_, what)) = found.filter(|_| value != &Value::Bool(false)) {
                        return elsewhere(what, quoted(shown(value).as_bytes()));
                    }
                    if key == "encrypted" && value == &Value::Bool(true) {
                        return Err(Refusal::unsupported(self.format, "encryption"));
                    }
                    if key == "extents" {
                        self.check_extents(value)?;
                    }
                    self.check_references(value)?;
                }
                Ok(())
            }
            Value::Array(values) => values.iter().try_for_each(|it| self.check_references(it)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn check_extents(&self, extents: &Value) -> Result<(), Refusal> {
        let own = self.source.path().to_string_lossy();
        let names = extents.as_array().into_iter().flatten().filter_map(|it| it.get("filename"));
        match names.map(shown).find(|name| *name != own) {
            Some(name) => Err(Refusal::RefersElsewhere {
                format: self.format,
                what: "extent".into(),
                name: quoted(name.as_bytes()),
            }),
            None => Ok(()),
        }
    }

    /// Returns an error if data of the disk is behind the end of the file. QEMU would read zeros
    /// there. It finds that itself for vhdx and for compressed data.
    fn check_map(&self) -> Result<(), Refusal> {
        let mut command = self.command("map");
        command.arg("--output=json").arg(self.options());
        let length = self.source.bytes();
        self.run(command, &mut |output| {
            let mut lines = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                let read = (&mut lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
                if read.map_err(|error| self.failed(&error))? == 0 {
                    return Ok(());
                }
                if let Some((at, end)) = placed(&line).filter(|(_, end)| *end > length) {
                    let needs = format!("the disk's bytes from {at} are at bytes up to {end}");
                    return Err(Refusal::truncated(self.format, length, needs));
                }
            }
        })
    }

    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(self.qemu.program);
        command.arg(action).arg("--image-opts").env_clear().env("LC_ALL", "C");
        command.current_dir(self.qemu.work);
        command
    }

    /// Runs `command`, which `take` gets the standard output of, to its end. The program is killed
    /// if `take` fails.
    fn run(
        &self,
        mut command: Command,
        take: &mut dyn FnMut(&mut dyn std::io::Read) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let errors = File::options().write(true).truncate(true).open(&self.errors.path);
        let errors = errors.map_err(|error| writing(&self.errors.path, &error))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let child = command.spawn().map_err(|error| self.failed(&error))?;
        let mut running = Running(child);
        if let Some(mut output) = running.0.stdout.take() {
            take(&mut output)?;
        }
        let status = running.0.wait().map_err(|error| self.failed(&error))?;
        if status.success() {
            return Ok(());
        }
        Err(match status.code() {
            Some(_) => self.refused(),
            None => Refusal::Io { operation: "running qemu-img".into(), error: status.to_string() },
        })
    }

    /// Returns the refusal with the last line of the errors of QEMU.
    fn refused(&self) -> Refusal {
        let mut text = Vec::new();
        let read = File::open(&self.errors.path)
            .and_then(|it| it.take(MAX_ERROR_BYTES).read_to_end(&mut text));
        let text = read.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        let line = line.unwrap_or("qemu-img gave no reason").trim_start_matches("qemu-img: ");
        // Paths of this host are no concern of the image's owner.
        let own = self.options().to_string_lossy().into_owned();
        let path = self.source.path().to_string_lossy();
        let line = line.replace(&own, "source").replace(&*path, "source");
        if line.contains("No space left on device") {
            return Refusal::io("writing the image", &rustix::io::Errno::NOSPC.into());
        }
        self.damaged(printable(line.as_bytes()))
    }

    fn damaged(&self, reason: String) -> Refusal {
        Refusal::damaged(self.format, reason)
    }

    fn failed(&self, error: &std::io::Error) -> Refusal {
        Refusal::io("running qemu-img", error)
    }

    /// Returns the source as QEMU takes it.
    fn options(&self) -> OsString {
        let driver = match self.format {
            // The size in the footer, not the one that its cylinders, heads and sectors give.
            Format::Vhd => "vpc,force_size_calc=current_size",
            Format::Raw
            | Format::Qcow2
            | Format::Vmdk
            | Format::Vdi
            | Format::Vhdx
            | Format::Tar => self.format.name(),
        };
        options(driver, self.source.path())
    }
}

/// Returns the file at `path` with `driver` as QEMU takes it. A comma ends a value unless it is
/// doubled.
fn options(driver: &str, path: &Path) -> OsString {
    let mut options = OsString::from(format!("driver={driver},file.driver=file,file.filename="));
    let parts = path.as_os_str().as_bytes().split(|byte| *byte == b',');
    for (number, part) in parts.enumerate() {
        if number > 0 {
            options.push(",,");
        }
        options.push(OsStr::from_bytes(part));
    }
    options
}

/// Returns the position of an area of the disk, and the end of its data in the file, from a line
/// of the map.
fn placed(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line).ok()?;
    let area: Value = serde_json::from_str(text.trim_matches(['[', ']', ',', '\n', ' '])).ok()?;
    let number = |key: &str| area.get(key).and_then(Value::as_u64);
    let is_data = area.get("data").and_then(Value::as_bool) == Some(true);
    let end = number("offset")?.saturating_add(number("length")?);
    is_data.then_some((number("start")?, end))
}

/// Returns a value for people.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A program that is killed when it is dropped before its end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended and was waited for.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_paths_are_doubled() {
        let expected = "driver=raw,file.driver=file,file.filename=/a,,b,,,,c";
        assert_eq!(options("raw", Path::new("/a,b,,c")), expected);
    }

    #[test]
    fn lines_of_a_map_tell_where_data_is() {
        let line = b"[{ \"start\": 512, \"length\": 1024, \"depth\": 0, \"zero\": false, \"data\": true, \"offset\": 4096},\n";
        assert_eq!(placed(line), Some((512, 5120)));
        for other in [
            &b"{ \"start\": 0, \"length\": 9, \"zero\": true, \"data\": false, \"offset\": 7}]\n"[..],
            b"{ \"start\": 0, \"length\": 9, \"zero\": false, \"data\": true},\n",
            b"\xff",
            b"",
        ] {
            assert_eq!(placed(other), None);
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("image");
        std::fs::write(&path, "KDMV").unwrap();
        let source = Source::open(&path).unwrap();
        let qemu = Qemu { program: Path::new("/nowhere"), work: place.path() };
        let error = Image::new(&qemu, Format::Vmdk, &source).err();
        let error = error.map(|error| error.to_string());
        let expected = "source: format vmdk: needs qemu-img: install qemu-utils";
        assert_eq!(error.as_deref(), Some(expected));
    }

    #[test]
    fn descriptions_that_name_other_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("image");
        std::fs::write(&path, "KDMV").unwrap();
        let source = Source::open(&path).unwrap();
        let qemu = Qemu { program: Path::new("/bin/true"), work: place.path() };
        let image = Image::new(&qemu, Format::Vmdk, &source).unwrap();
        let checked =
            |info: Value| image.check_references(&info).map_err(|error| error.to_string());
        let own = serde_json::json!({"format-specific": {"data": {"data-file-raw": false,
            "extents": [{"filename": path}]}}});
        assert_eq!(checked(own), Ok(()));
        for (info, part) in [
            (serde_json::json!({"backing-filename": "/b"}), "backing file \"/b\""),
            (serde_json::json!({"a": [{"data-file": "/d"}]}), "data file \"/d\""),
            (serde_json::json!({"x": {"extents": [{"filename": "/e"}]}}), "extent \"/e\""),
            (serde_json::json!({"encrypted": true}), "encryption: not supported"),
        ] {
            let error = checked(info).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
