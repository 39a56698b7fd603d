//! radosgw, the S3 server of Ceph, with a cluster of its own. It checks signatures.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::s3_bucket::{KEY, SECRET};

/// The port of every server. Each has an address of its own.
const PORT: u16 = 7480;

/// A server. It ends with its standard input, also when the test is killed.
#[derive(Debug)]
pub(crate) struct Radosgw {
    process: Child,
    input: Option<ChildStdin>,
    pub(crate) address: SocketAddr,
}

impl Radosgw {
    /// Starts a server without buckets.
    pub(crate) fn start() -> Self {
        let [.., third, fourth] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 77, third, fourth);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/s3/radosgw.sh");
        let mut command = Command::new(script);
        command.arg(ip.to_string()).arg(KEY).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Its processes are a group, which it ends.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        writeln!(input, "{SECRET}").unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line == "radosgw is ready");
        assert!(is_ready, "radosgw ended: `cargo rack test --long radosgw` installs it");
        Self { process, input: Some(input), address: (ip, PORT).into() }
    }
}

impl Drop for Radosgw {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ended = self.process.wait();
    }
}
