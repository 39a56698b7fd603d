use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::file::JournalFile;
use super::record::{CallRecord, Change, ObjectBody, ObjectRecord, Phase};
use super::table::Table;
use super::{Journal, OpenError};
use crate::options::NodeOptions;
use crate::tests::requests::bind;

fn put(id: i64) -> Change {
    let mut mount = bind("/srv");
    mount.id = id;
    let body = Some(ObjectBody::Mount(mount));
    Change::Put(Box::new(ObjectRecord { body, phase: Phase::Ready.into(), ..Default::default() }))
}

fn open(path: &Path) -> JournalFile {
    JournalFile::open(path).unwrap()
}

/// Writes a journal with `frames` frames after the first, and returns the directory and where each of them ends.
fn written(frames: i64) -> (TempDir, Vec<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = open(&path);
    let mut ends = vec![fs::metadata(&path).unwrap().len()];
    for id in 1..=frames {
        journal.append(vec![put(id)]).unwrap();
        ends.push(fs::metadata(&path).unwrap().len());
    }
    (dir, ends)
}

fn ids(table: &Table) -> Vec<i64> {
    table.objects.keys().copied().collect()
}

#[test]
fn what_was_appended_is_read_and_removed_ids_are_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = open(&path);
    let result = CallRecord { call_id: "c".into(), result: None, ended: 5 };
    journal.append(vec![put(1), put(2), Change::PutResult(result)]).unwrap();
    journal.append(vec![Change::Remove(2)]).unwrap();
    let before = journal.table().clone();
    drop(journal);
    let journal = open(&path);
    assert_eq!(journal.table(), &before);
    assert_eq!((ids(journal.table()), journal.table().next_id), (vec![1], 3));
    assert_eq!(journal.table().name.len(), 12);
}

#[test]
fn a_file_cut_anywhere_in_its_last_frame_loses_that_frame_only() {
    let (dir, ends) = written(3);
    let path = dir.path().join("journal");
    let whole = fs::read(&path).unwrap();
    for length in ends[2]..ends[3] {
        fs::write(&path, &whole[..usize::try_from(length).unwrap()]).unwrap();
        let mut journal = open(&path);
        assert_eq!(ids(journal.table()), [1, 2], "cut at byte {length}");
        journal.append(vec![put(9)]).unwrap();
        drop(journal);
        assert_eq!(ids(open(&path).table()), [1, 2, 9], "cut at byte {length}");
    }
}

#[test]
fn a_last_frame_of_other_bytes_is_cut_off() {
    let (dir, ends) = written(3);
    let path = dir.path().join("journal");
    let mut bytes = fs::read(&path).unwrap();
    bytes[usize::try_from(ends[2]).unwrap()..].fill(0);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(ids(open(&path).table()), [1, 2]);
}

#[test]
fn damage_before_the_last_frame_is_an_error_that_names_its_place() {
    let (dir, ends) = written(3);
    let path = dir.path().join("journal");
    let whole = fs::read(&path).unwrap();
    for (frame, position) in [(1, ends[1]), (1, ends[1] + 5), (1, ends[2] - 1), (0, ends[1] - 2)] {
        let mut bytes = whole.clone();
        bytes[usize::try_from(position).unwrap()] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        let expected = ends[if frame == 1 { 1 } else { 0 }];
        match JournalFile::open(&path) {
            Err(OpenError::Damaged { offset, .. }) => assert_eq!(offset, expected),
            other => panic!("byte {position}: {other:?}"),
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "the file is left as it is");
    }
}

#[test]
fn another_file_is_no_journal_and_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::write(&path, "something else").unwrap();
    assert!(matches!(JournalFile::open(&path), Err(OpenError::Unknown(_))));
    assert_eq!(fs::read(&path).unwrap(), b"something else");
}

#[test]
fn a_journal_is_open_once_at_a_time() {
    let (dir, _) = written(1);
    let path = dir.path().join("journal");
    let first = open(&path);
    assert!(matches!(JournalFile::open(&path), Err(OpenError::InUse(_))));
    drop(first);
    open(&path);
}

#[test]
fn a_long_file_is_compacted_and_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = open(&path);
    journal.append(vec![put(1), put(2), Change::Remove(2)]).unwrap();
    let mut longest = 0;
    for _ in 0..80 {
        let mut large = bind(&"x".repeat(100_000));
        large.id = 3;
        let body = Some(ObjectBody::Mount(large));
        let record = ObjectRecord { body, ..Default::default() };
        journal.append(vec![Change::Put(Box::new(record))]).unwrap();
        longest = longest.max(fs::metadata(&path).unwrap().len());
    }
    assert!(longest < 5 << 20, "{longest} bytes");
    let before = journal.table().clone();
    drop(journal);
    assert_eq!(open(&path).table(), &before);
    assert_eq!(before.next_id, 4);
}

#[tokio::test]
async fn appends_at_the_same_time_are_all_durable() {
    let dir = tempfile::tempdir().unwrap();
    let options = NodeOptions::new(dir.path().join("journal"));
    let (journal, _) = Journal::open(&options).await.unwrap();
    let appends = (1..=100).map(|id| journal.append(vec![put(id)]));
    for result in futures_util::future::join_all(appends).await {
        result.unwrap();
    }
    drop(journal);
    let read = loop {
        // The task that had the journal open ends after its handle.
        match JournalFile::open(&options.journal) {
            Ok(journal) => break journal,
            Err(OpenError::InUse(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(ids(read.table()), (1..=100).collect::<Vec<_>>());
}
