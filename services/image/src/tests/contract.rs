//! Both object stores: a directory and a bucket pass the same tests.

use std::sync::Arc;

use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use runtime::Clock;
use store::ScopedStore;
use store::memory::MemoryStore;
use tempfile::TempDir;

use super::bucket::TestBucket;
use crate::error::Error;
use crate::objects::{self, Objects};
use crate::uploads::{Checksum, Uploads};
use crate::{ContentStore, Settings, content_store};

/// More than two parts of an object, or of an upload.
const LARGE_BYTES: usize = (17 << 20) + 1;

/// An object store.
struct TestStore {
    name: &'static str,
    objects: Objects,
    uploads: Uploads,
    _folder: TempDir,
    _bucket: Option<TestBucket>,
}

impl TestStore {
    fn open(name: &'static str, folder: TempDir, bucket: Option<TestBucket>) -> Self {
        let content = match &bucket {
            Some(bucket) => bucket.content(),
            None => ContentStore::Directory(folder.path().to_owned()),
        };
        let settings = Settings { content: Some(content), ..Settings::default() };
        let store = ScopedStore::new(Arc::new(MemoryStore::default()), "image");
        let (objects, uploads) = content_store::open(&settings, &store, &Clock::system()).unwrap();
        Self { name, objects: objects.unwrap(), uploads, _folder: folder, _bucket: bucket }
    }

    /// Returns the bytes of the upload `image`.
    async fn upload(&self, image: &str) -> Vec<u8> {
        let size = self.uploads.offset(image).await.unwrap();
        let found = all(self.uploads.read(image, 0..size).await.unwrap()).await;
        assert_eq!(found.len() as u64, size, "{}", self.name);
        found
    }
}

async fn places() -> [TestStore; 2] {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, other] = folders;
    let bucket = TestBucket::start().await;
    [TestStore::open("directory", one, None), TestStore::open("bucket", other, Some(bucket))]
}

async fn all(stream: BoxStream<'static, Result<Bytes, objects::Error>>) -> Vec<u8> {
    stream.try_collect::<Vec<_>>().await.unwrap().concat()
}

/// Returns a body that comes in `parts`.
fn body(parts: &[&[u8]]) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<> {
    let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::copy_from_slice(part))).collect();
    stream::iter(parts)
}

/// Returns bytes that differ.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[tokio::test]
async fn an_object_has_its_bytes_until_it_is_removed() {
    for TestStore { name: place, objects, .. } in &places().await {
        for content in [b"hello world".to_vec(), noise(LARGE_BYTES)] {
            let (name, size) = (Objects::new_name("ab12"), content.len() as u64);
            let mut writer = objects.write(&name).await.unwrap();
            for part in content.chunks(100_000) {
                writer.write(Bytes::copy_from_slice(part)).await.unwrap();
            }
            assert!(objects.list().try_collect::<Vec<_>>().await.unwrap().is_empty(), "{place}");
            writer.finish().await.unwrap();
            assert!(objects.exists(&name, size).await.unwrap(), "{place}");
            assert!(!objects.exists(&name, size + 1).await.unwrap(), "{place}");
            assert!(all(objects.read(&name, None).await.unwrap()).await == content, "{place}");
            let range = all(objects.read(&name, Some(6..size)).await.unwrap()).await;
            assert!(range == content[6..], "{place}");
            let listed: Vec<_> = objects.list().try_collect().await.unwrap();
            assert_eq!(listed.iter().map(|it| &it.name).collect::<Vec<_>>(), [&name], "{place}");
            objects.remove(&name).await.unwrap();
            objects.remove(&name).await.unwrap();
            let missing = objects.read(&name, None).await.map(drop);
            assert!(matches!(missing, Err(objects::Error::Missing(_))), "{place}");
        }
    }
}

#[tokio::test]
async fn an_object_that_is_given_up_leaves_nothing() {
    for place in places().await {
        let name = Objects::new_name("ab12");
        let mut writer = place.objects.write(&name).await.unwrap();
        writer.write(noise(LARGE_BYTES).into()).await.unwrap();
        writer.abort().await.unwrap();
        assert!(place.objects.list().try_collect::<Vec<_>>().await.unwrap().is_empty());
        if let Some(bucket) = &place._bucket {
            assert_eq!(bucket.server.unfinished(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn an_upload_goes_on_where_it_ended() {
    for place in &places().await {
        let (name, uploads) = (place.name, &place.uploads);
        let broken = body(&[b"abc"]).chain(stream::iter([Err(Error::Busy)]));
        assert!(uploads.append("i", 0, broken, 100, None).await.is_err(), "{name}");
        assert_eq!(uploads.offset("i").await.unwrap(), 3, "{name}");
        let wrong = uploads.append("i", 2, body(&[b"x"]), 100, None).await;
        assert!(matches!(wrong, Err(Error::Offset { sent: 2, expected: 3 })), "{name}: {wrong:?}");
        let size = uploads.append("i", 3, body(&[b"de", b"f"]), 6, None).await.unwrap();
        assert_eq!(size, 6, "{name}");
        let longer = uploads.append("i", 6, body(&[b"g"]), 6, None).await;
        assert!(matches!(longer, Err(Error::TooLong { max: 6 })), "{name}: {longer:?}");
        assert_eq!(place.upload("i").await, b"abcdef", "{name}");
        assert_eq!(uploads.replace("i", body(&[b"new"]), 6).await.unwrap(), 3, "{name}");
        assert_eq!(place.upload("i").await, b"new", "{name}");
        assert_eq!(uploads.append("i", 3, body(&[b"er"]), 6, None).await.unwrap(), 5, "{name}");
        assert_eq!(place.upload("i").await, b"newer", "{name}");
    }
}

#[tokio::test]
async fn a_large_upload_has_its_bytes_in_order() {
    let content = noise(LARGE_BYTES);
    for place in &places().await {
        let (name, mut offset) = (place.name, 0);
        for part in [&content[..5], &content[5..(8 << 20)], &content[(8 << 20)..]] {
            let parts: Vec<_> = part.chunks(300_000).collect();
            let max = LARGE_BYTES as u64;
            offset = place.uploads.append("i", offset, body(&parts), max, None).await.unwrap();
        }
        assert_eq!(offset, LARGE_BYTES as u64, "{name}");
        assert!(place.upload("i").await == content, "{name}");
        // Beginnings and ends of requests, which are objects, too, and of parts: 8 MiB.
        let size = LARGE_BYTES as u64;
        let edges = [0, 4, 5, 6, 8 << 20, (8 << 20) + 5, 16 << 20, size - 1, size];
        for (start, end) in edges.iter().flat_map(|start| edges.map(|end| (*start, end))) {
            if start <= end {
                let found = all(place.uploads.read("i", start..end).await.unwrap()).await;
                assert!(found == content[start as usize..end as usize], "{name} {start}-{end}");
            }
        }
    }
}

#[tokio::test]
async fn bytes_with_another_checksum_are_not_kept() {
    let sum = |text: &[u8]| digest::digest(&digest::SHA256, text).as_ref().to_vec();
    let large = noise(LARGE_BYTES);
    for place in &places().await {
        let append = async |offset, sent: &[u8], expected: &[u8]| {
            let checksum = Checksum::new("sha256", sum(expected));
            place.uploads.append("i", offset, body(&[sent]), 100 << 20, checksum).await
        };
        assert_eq!(append(0, b"abc", b"abc").await.unwrap(), 3);
        for sent in [b"def".as_slice(), &large] {
            assert!(matches!(append(3, sent, b"dex").await, Err(Error::Checksum)));
            assert_eq!(place.uploads.offset("i").await.unwrap(), 3, "{}", place.name);
        }
        assert_eq!(append(3, b"def", b"def").await.unwrap(), 6);
        assert_eq!(place.upload("i").await, b"abcdef", "{}", place.name);
        if let Some(bucket) = &place._bucket {
            assert_eq!(bucket.server.keys().len(), 2, "one object for each request that counts");
        }
    }
    assert!(Checksum::new("md5", Vec::new()).is_none());
}

#[tokio::test]
async fn a_removed_upload_is_not_listed_and_leaves_nothing() {
    for place in &places().await {
        let (name, uploads) = (place.name, &place.uploads);
        for image in ["i", "j"] {
            uploads.append(image, 0, body(&[b"abc"]), 100, None).await.unwrap();
        }
        let listed = async || {
            let mut files = uploads.list().await.unwrap();
            files.sort_by(|a, b| a.image_id.cmp(&b.image_id));
            files.into_iter().map(|file| (file.image_id, file.size)).collect::<Vec<_>>()
        };
        assert_eq!(listed().await, [("i".into(), 3), ("j".into(), 3)], "{name}");
        uploads.remove("i").await.unwrap();
        uploads.remove("i").await.unwrap();
        assert_eq!(listed().await, [("j".into(), 3)], "{name}");
        assert_eq!(uploads.offset("i").await.unwrap(), 0, "{name}");
        assert!(uploads.read("i", 0..0).await.is_err(), "{name}");
        uploads.append("i", 0, body(&[b"de"]), 100, None).await.unwrap();
        uploads.sweep().await.unwrap();
        assert_eq!(place.upload("i").await, b"de", "{name}");
        assert_eq!(place.upload("j").await, b"abc", "{name}");
        if let Some(bucket) = &place._bucket {
            assert_eq!(bucket.server.keys().len(), 2);
        }
    }
}
