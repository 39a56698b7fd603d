//! A client over a Unix socket or TCP, with a connection for each request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::host::until;

/// The address of a server.
#[derive(Clone)]
pub(crate) enum Client {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// The status, the headers and the body of a response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the body, which is JSON and said to be.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert!(
            self.head.to_lowercase().contains("content-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Client {
    pub(crate) fn unix(path: PathBuf) -> Self {
        Self::Unix(path)
    }

    /// Sends `bytes`, and reads the answer.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Answer {
        self.try_exchange(bytes).expect("an answer")
    }

    fn try_exchange(&self, bytes: &[u8]) -> std::io::Result<Answer> {
        match self {
            Self::Unix(path) => exchange(UnixStream::connect(path)?, bytes),
            Self::Tcp(address) => exchange(TcpStream::connect(address)?, bytes),
        }
    }

    /// Sends a request; `target` is below the base path.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, target: &str, body: Option<&Value>) -> Answer {
        self.exchange(&request(method, target, body))
    }

    /// Sends a request to a server that may be gone.
    pub(crate) fn try_call(
        &self,
        method: &str,
        target: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        self.try_exchange(&request(method, target, body)).ok()
    }

    /// Creates an object.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.call("POST", path, Some(body));
        assert_eq!(answer.status, 201, "{body}: {}", answer.json());
        answer.json()
    }

    /// Returns the status and the message of a refused creation.
    #[track_caller]
    pub(crate) fn refused(&self, path: &str, body: &Value) -> (u16, String) {
        let answer = self.call("POST", path, Some(body));
        (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Sends a request without a body that succeeds.
    #[track_caller]
    pub(crate) fn send(&self, method: &str, target: &str) -> Value {
        let answer = self.call(method, target, None);
        assert_eq!(answer.status, 200, "{method} {target}: {}", answer.json());
        answer.json()
    }

    #[track_caller]
    pub(crate) fn status(&self, method: &str, target: &str) -> u16 {
        self.call(method, target, None).status
    }

    #[track_caller]
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        self.send("GET", path).as_array().unwrap().clone()
    }

    /// Returns the state of the container `id`.
    #[track_caller]
    pub(crate) fn state(&self, id: &Value) -> String {
        self.list(&format!("/container?id={id}"))[0]["state"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn until_state(&self, id: &Value, state: &str) {
        until(&format!("container {id} is {state}"), || self.state(id) == state);
    }

    /// Waits until no object is left.
    #[track_caller]
    pub(crate) fn until_empty(&self) {
        let count = || {
            let paths = ["/attach", "/mount", "/container"];
            paths.into_iter().map(|path| self.list(path).len()).sum::<usize>()
        };
        until("no object is left", || count() == 0);
    }
}

fn request(method: &str, target: &str, body: Option<&Value>) -> Vec<u8> {
    let body = body.map(Value::to_string);
    let content = body.as_ref().map(|_| "Content-Type: application/json\r\n");
    let head = format!(
        "{method} /imageapi/v1{target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\
         {}Content-Length: {}\r\n\r\n",
        content.unwrap_or_default(),
        body.as_ref().map_or(0, String::len)
    );
    (head + &body.unwrap_or_default()).into_bytes()
}

/// Sends `bytes`, and reads one answer.
pub(crate) fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> std::io::Result<Answer> {
    stream.write_all(bytes)?;
    let (mut received, mut chunk) = (Vec::new(), [0; 1 << 16]);
    let mut read = |received: &mut Vec<u8>| match stream.read(&mut chunk)? {
        0 => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
        length => {
            received.extend_from_slice(&chunk[..length]);
            Ok(())
        }
    };
    let end = loop {
        match received.windows(4).position(|window| window == b"\r\n\r\n") {
            Some(end) => break end,
            None => read(&mut received)?,
        }
    };
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next_back()
    };
    let is_head = bytes.starts_with(b"HEAD ");
    let length =
        field("content-length").filter(|_| !is_head).map_or(0, |text| text.parse().unwrap());
    while received.len() < end + 4 + length {
        read(&mut received)?;
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok(Answer { status, body: received[end + 4..].to_vec(), head })
}
