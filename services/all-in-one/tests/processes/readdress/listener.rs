//! Requests for metadata from a machine, all the time and from every address that it may have, and their responses.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use load::http::{HttpResponse, get};
use tokio_util::sync::CancellationToken;

use super::{Change, NEW, OLD, OTHER};

/// The requested path.
pub(super) const PATHS: [&str; 3] =
    ["/latest/meta-data/instance-id", "/latest/user-data", "/latest/meta-data/hostname"];
const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 8080);
/// The interval of requests, below the rate limit.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// The time limit of a response: there is none after the address was removed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// All responses.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Vec<Once>>);

/// A response, with its machine and times.
#[derive(Clone, Debug)]
struct Once {
    machine: usize,
    source: Ipv4Addr,
    path: usize,
    asked: Instant,
    answered: Instant,
    answer: HttpResponse,
}

impl Heard {
    /// Sends requests from `machine` until `stop`.
    pub(super) async fn listen(&self, machine: usize, stop: &CancellationToken) {
        let every = async {
            tokio::join!(self.ask(machine, OLD), self.ask(machine, NEW), self.ask(machine, OTHER))
        };
        stop.run_until_cancelled(every).await;
    }

    async fn ask(&self, machine: usize, source: Ipv4Addr) -> std::convert::Infallible {
        loop {
            for (path, name) in PATHS.iter().enumerate() {
                let asked = Instant::now();
                let answer =
                    tokio::time::timeout(RESPONSE_TIMEOUT, get(source, METADATA, name)).await;
                // The machine does not have the address now.
                let Ok(Ok(answer)) = answer else { continue };
                let answered = Instant::now();
                let once = Once { machine, source, path, asked, answered, answer };
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push(once);
            }
            tokio::time::sleep(REQUEST_INTERVAL).await;
        }
    }

    fn at(&self, machine: usize, source: Ipv4Addr) -> Vec<Once> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .filter(|once| (once.machine, once.source) == (machine, source))
            .cloned()
            .collect()
    }

    /// Waits until `machine` got its whole metadata at `source`.
    pub(super) async fn all(&self, machine: usize, source: Ipv4Addr) {
        loop {
            let received =
                self.at(machine, source).into_iter().filter(|once| once.answer.status == 200);
            if received.map(|once| once.path).collect::<BTreeSet<_>>().len() == PATHS.len() {
                return;
            }
            tokio::time::sleep(REQUEST_INTERVAL).await;
        }
    }

    /// Returns the time from the first response to `machine` at `source` until the first whole one, which must exist.
    pub(super) fn within(&self, machine: usize, source: Ipv4Addr) -> Duration {
        let all = self.at(machine, source);
        let first = all.iter().map(|once| once.asked).min().expect("it received responses there");
        let answered =
            |path| all.iter().find(|once| once.path == path && once.answer.status == 200);
        let received =
            (0..PATHS.len()).map(|path| answered(path).expect("it received everything").answered);
        received.max().map_or(Duration::ZERO, |last| last.duration_since(first))
    }

    /// Checks that `machine` got its own `facts` at `source` while its record had that address, and never those of another machine.
    /// Both are allowed while a change is in progress. A refusal because another machine was seen with the address does not name
    /// that machine.
    pub(super) fn is(
        &self,
        machine: usize,
        source: Ipv4Addr,
        facts: &[String; PATHS.len()],
        from: Change,
        until: Option<Change>,
    ) {
        for once in self.at(machine, source) {
            let received = once.answer.status == 200;
            let body = if received { facts[once.path].as_str() } else { "" };
            assert_eq!(once.answer.body, body, "{once:?}");
            assert!(received || [403, 404, 429].contains(&once.answer.status), "{once:?}");
            let sure = once.asked > from.known && until.is_none_or(|u| once.answered < u.asked);
            let may = once.answered > from.asked && until.is_none_or(|u| once.asked < u.known);
            assert!(
                received || !sure || once.answer.status == 403,
                "refused what is its own: {once:?}"
            );
            assert!(may || !received, "received what is not its own: {once:?}");
        }
    }

    /// Checks that `machine` never got a response at `source`.
    pub(super) fn nothing(&self, machine: usize, source: Ipv4Addr) {
        assert!(self.at(machine, source).is_empty(), "{:?}", self.at(machine, source));
    }

    /// Returns the statuses of responses to `machine` at `source`.
    pub(super) fn statuses(&self, machine: usize, source: Ipv4Addr) -> BTreeSet<u16> {
        self.at(machine, source).iter().map(|once| once.answer.status).collect()
    }
}
