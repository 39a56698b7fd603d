//! A bucket of an S3 server, as curl sees it: the client under test does not check itself.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Id of the access key.
pub(crate) const KEY: &str = "AKID";
/// The secret of the access key.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";
/// SHA-256 of an empty body, which requests with a signature name.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A bucket, and files with the access key.
#[derive(Debug)]
pub(crate) struct S3Bucket {
    pub(crate) address: SocketAddr,
    pub(crate) name: String,
    folder: TempDir,
}

impl S3Bucket {
    /// The bucket `name` of the server at `address`.
    pub(crate) fn of(address: SocketAddr, name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = format!("aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
        fs::write(folder.path().join("key"), key).unwrap();
        // curl of Debian 12 signs a name without its port, unless there is a header.
        let curl = format!(
            "user = \"{KEY}:{SECRET}\"\naws-sigv4 = \"aws:amz:us-east-1:s3\"\n\
             header = \"Host: {address}\"\nheader = \"x-amz-content-sha256: {EMPTY}\"\n"
        );
        fs::write(folder.path().join("curl"), curl).unwrap();
        Self { address, name: name.to_owned(), folder }
    }

    /// Creates the bucket.
    pub(crate) fn create(&self) {
        self.request("PUT", "");
    }

    /// Returns the file with the access key.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Returns the keys of all objects.
    pub(crate) fn keys(&self) -> Vec<String> {
        values(&self.request("GET", "?list-type=2"), "Key")
    }

    /// Returns the keys of unfinished multipart uploads.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        values(&self.request("GET", "?uploads="), "Key")
    }

    /// Makes a request for the bucket. Returns the body of the answer.
    fn request(&self, method: &str, query: &str) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--request", method]);
        curl.arg("--config").arg(self.folder.path().join("curl"));
        let Self { address, name, .. } = self;
        let output = curl.arg(format!("http://{address}/{name}{query}")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{method} {query}: {text}");
        text
    }
}

/// Returns the texts of the elements `name` in the XML `text`.
fn values(text: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let rest = text.split(open.as_str()).skip(1);
    rest.filter_map(|it| Some(it.split_once(close.as_str())?.0.to_owned())).collect()
}
