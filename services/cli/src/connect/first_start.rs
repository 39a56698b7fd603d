//! Waiting for a server that was started just before, for the first time on its host: lines of a shell
//! that start it and call it do not need a pause between them.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use runtime::Clock;
use tokio::net::TcpStream;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// Looks until the server is not waited for any more: ten seconds.
const MAX_LOOKS: usize = 100;
/// Age of the files of a server that may still be starting for the first time.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Waits until the server whose caller has the `key` listens at `address`, if it was started less than
/// a minute ago for the first time. Returns after ten seconds in any case.
pub(super) async fn wait(key: &Path, address: &str) {
    for look in 0..MAX_LOOKS {
        if !is_new(key) || key.exists() && TcpStream::connect(address).await.is_ok() {
            return;
        }
        if look == 0 {
            eprintln!("tinwright: waiting for the server at {address} to start");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// True if the file is not there yet, or was made less than a minute ago.
fn is_new(key: &Path) -> bool {
    match key.metadata().and_then(|file| file.modified()) {
        Ok(made) => Clock::system().wall().duration_since(made).is_ok_and(|age| age < MAX_AGE),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_first_start_is_waited_for_and_a_stopped_server_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("admin-key.pem");
        let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = reserved.local_addr().unwrap();
        drop(reserved);
        let made = key.clone();
        let start = tokio::spawn(async move {
            tokio::time::sleep(INTERVAL).await;
            std::fs::write(made, "key").unwrap();
            tokio::time::sleep(INTERVAL).await;
            TcpListener::bind(address).unwrap()
        });
        let text = address.to_string();
        wait(&key, &text).await;
        assert!(key.exists() && start.is_finished(), "it listens");
        drop(start.await.unwrap());
        let file = std::fs::File::options().write(true).open(&key).unwrap();
        file.set_modified(Clock::system().wall() - 2 * MAX_AGE).unwrap();
        assert!(
            wait(&key, &text).now_or_never().is_some(),
            "nothing listens, and it is not waited for"
        );
    }
}
