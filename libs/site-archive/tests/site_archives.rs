//! Archives as they are written, as others read them (`tar`, `sha256sum`, `minisign`), and as
//! strangers may change them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use image_signature::PublicKeys;
use proptest::prelude::*;
use site_archive::list_text;
use site_archive::{Archive, COMMENT, Digest, Error, LIST, ListedFile, SIGNATURE, Trust, Writer};
use tar_core::EntryType;
use tar_core::builder::EntryBuilder;

/// Files of an archive, with their content. One name is longer than the field of a header.
fn files() -> Vec<(String, Vec<u8>)> {
    let large = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let long = format!("files/{}/x.bin", "long-".repeat(30));
    vec![
        ("osie/vmlinuz-x86_64".into(), large),
        ("files/with space.txt".into(), b"text\n".to_vec()),
        ("files/empty".into(), Vec::new()),
        (long, vec![7; 512]),
    ]
}

fn listed(files: &[(String, Vec<u8>)]) -> Vec<ListedFile> {
    let file = |(name, content): &(String, Vec<u8>)| ListedFile {
        name: name.clone(),
        bytes: content.len() as u64,
        sha256: Digest::of(content),
    };
    files.iter().map(file).collect()
}

/// Writes an archive of `files` with the list of `listed`.
fn archive(files: &[(String, Vec<u8>)], signature: Option<&str>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), listed(files), signature).unwrap();
    for (name, content) in files {
        writer.begin(name).unwrap();
        content.chunks(700_000).for_each(|part| writer.write(part).unwrap());
        writer.end().unwrap();
    }
    writer.finish().unwrap()
}

/// A key pair of `minisign`.
struct Key(tempfile::TempDir);

impl Key {
    fn new() -> Self {
        let key = Self(tempfile::tempdir().unwrap());
        succeeds(key.minisign(&["-G", "-W", "-p", "key.pub", "-s", "key"]));
        key
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn minisign(&self, arguments: &[&str]) -> Output {
        Command::new("minisign").args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    fn sign(&self, text: &str, comment: &str) -> String {
        // Several tests sign at the same time.
        let folder = tempfile::tempdir_in(self.0.path()).unwrap();
        let [file, signature] = ["text", "signature"].map(|name| folder.path().join(name));
        fs::write(&file, text).unwrap();
        let [message, output] = [&file, &signature].map(|path| path.to_str().unwrap());
        let words = ["-S", "-s", "key", "-m", message, "-x", output, "-t", comment];
        succeeds(self.minisign(&words));
        fs::read_to_string(signature).unwrap()
    }

    fn trust(&self) -> Trust {
        let text = fs::read_to_string(self.path("key.pub")).unwrap();
        Trust::Keys(PublicKeys::parse(&text).unwrap())
    }
}

/// The key of most tests.
static KEY: LazyLock<Key> = LazyLock::new(Key::new);
/// A signed archive of [`files`].
static SIGNED: LazyLock<Vec<u8>> = LazyLock::new(|| signed(&files()));

fn signed(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let signature = KEY.sign(&list_text(&listed(files)), COMMENT);
    archive(files, Some(&signature))
}

fn open(bytes: &[u8], trust: &Trust) -> Result<Archive<Cursor<Vec<u8>>>, Error> {
    Archive::open(Cursor::new(bytes.to_vec()), trust, &mut |_| ())
}

/// Returns the reason why `bytes` are refused, with its causes.
fn reason(bytes: &[u8], trust: &Trust) -> String {
    let error = open(bytes, trust).map(|archive| archive.files().to_vec()).unwrap_err();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    assert!(!text.contains('\n'), "{text}");
    text
}

fn succeeds(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn run(folder: &Path, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    succeeds(command.args(words).current_dir(folder).output().unwrap())
}

#[test]
fn an_archive_is_read_as_it_was_written() {
    let mut read_bytes = 0;
    let source = Cursor::new(SIGNED.clone());
    let mut archive =
        Archive::open(source, &KEY.trust(), &mut |bytes| read_bytes += bytes).unwrap();
    assert!(archive.signer().is_some());
    let files = files();
    assert_eq!(read_bytes, files.iter().map(|(_, content)| content.len() as u64).sum::<u64>());
    let archived = archive.files().to_vec();
    assert_eq!(archived.len(), files.len());
    for (file, (name, content)) in archived.iter().zip(&files) {
        assert_eq!((&file.name, file.sha256), (name, Digest::of(content)));
        assert!(archive.read(file, 3_000_000).unwrap() == *content, "{name}");
        let from = file.offset as usize;
        assert!(SIGNED[from..from + content.len()] == *content, "{name}");
    }
    let error = archive.read(&archived[0], 2_999_999).unwrap_err().to_string();
    assert_eq!(error, "osie/vmlinuz-x86_64: 3000000 bytes: at most 2999999");
    assert!(open(&SIGNED, &Trust::Anybody).unwrap().signer().is_none());
    assert!(open(&self::archive(&files, None), &Trust::Anybody).is_ok());
    assert!(open(&self::archive(&[], None), &Trust::Anybody).unwrap().files().is_empty());
}

#[test]
fn tar_sha256sum_and_minisign_read_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("site.tar"), &*SIGNED).unwrap();
    fs::copy(KEY.path("key.pub"), folder.path().join("key.pub")).unwrap();
    let names: Vec<_> = files().into_iter().map(|(name, _)| name).collect();
    let expected = [&[LIST.to_owned(), SIGNATURE.to_owned()], &names[..]].concat();
    let shown = run(folder.path(), "tar -tf site.tar");
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    assert_eq!(run(folder.path(), "tar -xf site.tar"), "");
    let checked = run(folder.path(), "sha256sum --strict -c SHA256SUMS");
    assert_eq!(checked.lines().count(), names.len(), "{checked}");
    let verified = run(folder.path(), "minisign -V -p key.pub -m SHA256SUMS");
    assert!(verified.contains(COMMENT), "{verified}");
    // What tar makes of these files is an archive, too.
    fs::write(folder.path().join("names"), expected.join("\n")).unwrap();
    run(folder.path(), "tar -cf again.tar -T names");
    let again = fs::read(folder.path().join("again.tar")).unwrap();
    assert_eq!(open(&again, &KEY.trust()).unwrap().files().len(), names.len());
}

#[test]
fn a_list_that_is_not_signed_by_the_key_is_refused() {
    let files = files();
    let list = list_text(&listed(&files));
    let other = Key::new();
    assert!(reason(&SIGNED, &other.trust()).contains("not among the accepted keys"));
    let unsigned = archive(&files, None);
    let needs = "not signed: its second file is not SHA256SUMS.minisig";
    assert_eq!(reason(&unsigned, &KEY.trust()), needs);
    let image = archive(&files, Some(&KEY.sign(&list, "tinwright image 1")));
    assert!(reason(&image, &KEY.trust()).contains("not an archive of a site in a version"));
    let shorter = archive(&files, Some(&KEY.sign(&list[..list.len() - 1], COMMENT)));
    assert!(reason(&shorter, &KEY.trust()).contains("broken"));
    let garbage = archive(&files, Some("signature"));
    assert!(reason(&garbage, &KEY.trust()).starts_with("SHA256SUMS.minisig: signature: not four"));
}

#[test]
fn the_signature_is_verified_before_anything_else_is_read() {
    let files = files();
    let signature = Key::new().sign(&list_text(&listed(&files)), COMMENT);
    let whole = archive(&files, Some(&signature));
    // The archive ends behind the signature: nothing of it is missing for the refusal.
    let begin = archive(&[], Some(&signature)).len() - 1024;
    let list = list_text(&listed(&files)).len().next_multiple_of(512);
    let cut = &whole[..begin + list];
    assert!(reason(cut, &KEY.trust()).contains("not among the accepted keys"));
    let cut = &SIGNED[..begin + list];
    assert_eq!(reason(cut, &KEY.trust()), "truncated: its end mark is missing");
}

/// One entry of a tar that is made here, by the rules of no program.
fn entry(name: &str, kind: EntryType, link: &str, content: &[u8]) -> Vec<u8> {
    let mut builder = EntryBuilder::new_gnu();
    builder.path(name).entry_type(kind).mode(0o644).unwrap();
    builder.uid(0).unwrap().gid(0).unwrap().mtime(0).unwrap();
    builder.size(content.len() as u64).unwrap();
    if !link.is_empty() {
        builder.link_name(link);
    }
    let mut bytes = builder.finish_bytes();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Returns a signed archive with this list and these entries.
fn made(list: &str, entries: &[Vec<u8>]) -> Vec<u8> {
    let regular = |name: &str, text: &str| entry(name, EntryType::Regular, "", text.as_bytes());
    let signature = KEY.sign(list, COMMENT);
    let own = [regular(LIST, list), regular(SIGNATURE, &signature)].concat();
    [own, entries.concat(), vec![0; 1024]].concat()
}

/// Returns the line of the list for a file with this content.
fn line(name: &str, content: &[u8]) -> String {
    format!("{}  {name}\n", Digest::of(content))
}

#[test]
fn files_that_are_missing_more_or_others_than_the_list_are_refused() {
    let file = |name: &str, content: &[u8]| entry(name, EntryType::Regular, "", content);
    let list = line("a", b"1") + &line("b", b"2");
    let (a, b) = (file("a", b"1"), file("b", b"2"));
    assert!(open(&made(&list, &[b.clone(), a.clone()]), &KEY.trust()).is_ok(), "in any order");
    for (entries, expected) in [
        (vec![a.clone()], "b: missing: only the list has it".to_owned()),
        (vec![a.clone(), b.clone(), file("c", b"")], "c: not in the list, or twice".into()),
        (vec![a.clone(), b.clone(), a.clone()], "a: not in the list, or twice".into()),
        (
            vec![a.clone(), b.clone(), file(LIST, b"")],
            "SHA256SUMS: not in the list, or twice".into(),
        ),
        (
            vec![a.clone(), file("b", b"3")],
            format!(
                "b: changed: its SHA-256 is {}, listed is {}",
                Digest::of(b"3"),
                Digest::of(b"2")
            ),
        ),
    ] {
        assert_eq!(reason(&made(&list, &entries), &KEY.trust()), expected);
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_although_they_are_signed() {
    for name in ["/etc/passwd", "../a", "osie/../../a", "a//b", "./a", "a\\nb"] {
        let bytes = made(&line(name, b"1"), &[entry(name, EntryType::Regular, "", b"1")]);
        let reason = reason(&bytes, &KEY.trust());
        assert!(reason.contains("name"), "{name}: {reason}");
    }
}

#[test]
fn links_directories_and_devices_are_refused() {
    for (name, kind, link, problem) in [
        ("a", EntryType::Symlink, "/etc/passwd", "a: a link"),
        ("a", EntryType::Link, "SHA256SUMS", "a: a link"),
        ("a/", EntryType::Directory, "", "a/: a directory"),
        ("a/", EntryType::Regular, "", "a/: a directory"),
        ("a", EntryType::Char, "", "a: a device"),
        ("a", EntryType::Fifo, "", "a: a device"),
        ("a", EntryType::Other(b'V'), "", "a: not a regular file"),
    ] {
        let bytes = made(&line("a", b""), &[entry(name, kind, link, b"")]);
        assert_eq!(reason(&bytes, &KEY.trust()), problem, "{kind:?}");
    }
}

#[test]
fn sparse_files_and_headers_of_pax_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let list = line("a", &[0; 65536]);
    for (name, text) in [(LIST, &list), (SIGNATURE, &KEY.sign(&list, COMMENT))] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::File::create(folder.path().join("a")).unwrap().set_len(65536).unwrap();
    for (options, problem) in [
        ("--format=gnu --sparse", "a: a sparse file"),
        ("--format=pax --sparse", "SHA256SUMS: a file with headers of pax"),
        ("--format=pax", "SHA256SUMS: a file with headers of pax"),
    ] {
        run(folder.path(), &format!("tar {options} -cf made.tar SHA256SUMS SHA256SUMS.minisig a"));
        let made = fs::read(folder.path().join("made.tar")).unwrap();
        assert_eq!(reason(&made, &KEY.trust()), problem, "{options}");
    }
}

#[test]
fn what_is_no_tar_or_only_a_part_of_one_is_refused() {
    let trust = KEY.trust();
    assert_eq!(reason(b"", &trust), "truncated: its end mark is missing");
    assert_eq!(
        reason(&[0; 10240], &trust),
        "not an archive of a site: its first file is not SHA256SUMS"
    );
    assert!(reason(&[0x55; 4096], &trust).starts_with("not a tar: "));
    let other = entry("a", EntryType::Regular, "", b"1");
    assert!(reason(&[other, vec![0; 1024]].concat(), &trust).contains("its first file is not"));
    for cut in [SIGNED.len() - 1, SIGNED.len() - 1024, SIGNED.len() - 1500, 1_000_000, 700] {
        assert_eq!(reason(&SIGNED[..cut], &trust), "truncated: its end mark is missing", "{cut}");
    }
    let mut trailing = SIGNED.clone();
    trailing.write_all(&[0; 9000]).unwrap();
    assert!(open(&trailing, &trust).is_ok(), "zeros fill the last record");
    trailing.write_all(&entry("b", EntryType::Regular, "", b"1")).unwrap();
    assert_eq!(reason(&trailing, &trust), "data after its end mark");
    let mut hidden = SIGNED[..SIGNED.len() - 512].to_vec();
    hidden.extend(entry("b", EntryType::Regular, "", b"1"));
    assert_eq!(reason(&hidden, &trust), "data after its end mark");
}

#[test]
fn an_archive_that_changes_after_the_check_is_noticed() {
    let path = tempfile::NamedTempFile::new().unwrap();
    fs::write(path.path(), &*SIGNED).unwrap();
    let opened = fs::File::open(path.path()).unwrap();
    let mut archive = Archive::open(opened, &KEY.trust(), &mut |_| ()).unwrap();
    let file = archive.files()[1].clone();
    assert_eq!(archive.read(&file, 5).unwrap(), b"text\n");
    let mut changed = SIGNED.clone();
    changed[usize::try_from(file.offset).unwrap()] ^= 1;
    fs::write(path.path(), &changed).unwrap();
    let error = archive.read(&file, 5).unwrap_err().to_string();
    assert!(error.starts_with("files/with space.txt: changed: its SHA-256 is "), "{error}");
}

#[test]
fn a_file_that_changes_while_it_is_written_is_noticed() {
    let files = vec![("a".to_owned(), b"123".to_vec())];
    let begun = || {
        let mut writer = Writer::new(Vec::new(), listed(&files), None).unwrap();
        writer.begin("a").unwrap();
        writer
    };
    let mut writer = begun();
    writer.write(b"124").unwrap();
    assert!(matches!(writer.end(), Err(Error::Changed { .. })));
    let mut writer = begun();
    writer.write(b"12").unwrap();
    assert_eq!(writer.end().unwrap_err().to_string(), "a: changed: it has become shorter");
    let error = begun().write(b"1234").unwrap_err().to_string();
    assert_eq!(error, "a: changed: it has become longer");
    assert_eq!(begun().begin("b").unwrap_err().to_string(), "b: not the next file of the list");
    let writer = Writer::new(Vec::new(), listed(&files), None).unwrap();
    assert_eq!(writer.finish().unwrap_err().to_string(), "a: not written");
    let wrong = vec![("../a".to_owned(), Vec::new())];
    assert!(Writer::new(Vec::new(), listed(&wrong), None).is_err());
}

#[test]
fn a_size_beyond_eight_gibibytes_is_written_as_tar_reads_it() {
    let file = ListedFile { name: "a".into(), bytes: 20 << 30, sha256: Digest::of(b"") };
    let path = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(path.reopen().unwrap(), vec![file], None).unwrap();
    writer.begin("a").unwrap();
    let output = Command::new("tar").arg("-tvf").arg(path.path()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.lines().any(|line| line.contains(" 21474836480 1980-01-01")), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_changed_byte_changes_no_content(at in 0_usize..3_010_000, flip in 1_u8..) {
        let mut changed = SIGNED.clone();
        let at = at % changed.len();
        changed[at] ^= flip;
        if let Ok(mut archive) = open(&changed, &KEY.trust()) {
            let files = files();
            let archived = archive.files().to_vec();
            prop_assert_eq!(archived.len(), files.len());
            for (file, (name, content)) in archived.iter().zip(&files) {
                prop_assert_eq!(&file.name, name);
                prop_assert!(archive.read(file, u64::MAX).unwrap() == *content);
            }
        }
    }

    #[test]
    fn other_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(open(&bytes, &Trust::Anybody).is_err());
    }

    #[test]
    fn any_files_are_read_as_they_were_written(
        files in prop::collection::btree_map("[a-z]{1,9}(/[a-z]{1,120}){0,2}", prop::collection::vec(any::<u8>(), 0..2000), 0..8),
    ) {
        let files: Vec<_> = files.into_iter().collect();
        let mut archive = open(&self::archive(&files, None), &Trust::Anybody).unwrap();
        let archived = archive.files().to_vec();
        prop_assert_eq!(archived.len(), files.len());
        for (file, (name, content)) in archived.iter().zip(&files) {
            prop_assert_eq!(&file.name, name);
            prop_assert_eq!(&archive.read(file, 2000).unwrap(), content);
        }
    }
}
