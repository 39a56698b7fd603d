//! radosgw, which checks signatures, in place of moto.

use std::error::Error;
use std::process::Command;
use std::sync::LazyLock;

use super::bucket::{SERVER, store};
use super::contract::noise;
use super::radosgw::Radosgw;
use super::s3_bucket::{KEY, S3Bucket, SECRET};
use super::site::Site;
use crate::{ContentStore, S3Settings};

/// The test that has a server of its own, with TLS.
const WITH_TLS: &str = "a_server_with_a_private_authority_is_trusted_by_the_setting_only";
/// Another secret than that of the access key.
const WRONG_SECRET: &str = "another-secret-of-the-key";

/// The server of all tests here. It ends with this process.
static RADOSGW: LazyLock<Radosgw> = LazyLock::new(Radosgw::start);

/// Returns the error and its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| Error::source(*error));
    causes.map(|error| format!("{error}\n")).collect()
}

/// Returns the settings of a site with the bucket `server`, after a `change`.
fn settings(server: &S3Bucket, change: impl FnOnce(&mut S3Settings)) -> ContentStore {
    let mut settings = S3Settings {
        url: format!("http://{}", server.address).parse().unwrap(),
        bucket: server.name.clone(),
        region: "us-east-1".into(),
        credentials: server.credentials(),
        ca: None,
    };
    change(&mut settings);
    ContentStore::S3(settings)
}

/// Returns this program with the tests of buckets, which use radosgw.
fn tests_of_buckets() -> Command {
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["tests::bucket::", "tests::contract::", "--skip", WITH_TLS]);
    tests.env(SERVER, RADOSGW.address.to_string());
    tests
}

#[test]
#[ignore = "long: cargo rack test --long"]
fn the_tests_of_buckets_pass_with_radosgw() {
    let listed = tests_of_buckets().arg("--list").output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let names: Vec<_> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let output = tests_of_buckets().output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    println!("{printed}");
    let has_passed = |name: &&&str| printed.contains(&format!("test {name} ... ok\n"));
    assert_eq!(names.iter().filter(has_passed).count(), names.len());
    assert!(output.status.success() && names.len() > 10, "{names:?}");
}

#[tokio::test]
#[ignore = "long: cargo rack test --long"]
async fn a_wrong_key_is_refused_by_its_cause_and_without_a_secret() {
    let bucket = S3Bucket::of(RADOSGW.address, "keys");
    bucket.create();
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str, id: &str, secret: &str| {
        let path = folder.path().join(name);
        let text = format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        std::fs::write(&path, text).unwrap();
        path
    };
    let wrong_secret = settings(&bucket, |it| it.credentials = key("a", KEY, WRONG_SECRET));
    let wrong_id = settings(&bucket, |it| it.credentials = key("b", "OTHER", WRONG_SECRET));
    let missing = settings(&bucket, |it| it.bucket = "missing".into());
    for (settings, cause) in [
        (wrong_secret, "SignatureDoesNotMatch"),
        (wrong_id, "InvalidAccessKeyId"),
        (missing, "NoSuchBucket"),
    ] {
        let error = chain(&store(&Site::on(settings), b"content").await.unwrap_err());
        assert!(error.contains(cause), "{cause}: {error}");
        assert!(!error.contains(SECRET) && !error.contains(WRONG_SECRET), "{error}");
    }
    assert_eq!((bucket.keys(), bucket.unfinished()), (vec![], vec![]));
}

#[tokio::test]
#[ignore = "long: cargo rack test --long"]
async fn a_region_is_part_of_the_signature_and_radosgw_takes_any() {
    let bucket = S3Bucket::of(RADOSGW.address, "regions");
    bucket.create();
    let site = Site::on(settings(&bucket, |it| it.region = "eu-west-9".into()));
    store(&site, &noise(10)).await.unwrap();
    assert_eq!(bucket.keys().len(), 1);
}
