//! The streams of agents to this process, in memory.
//!
//! A node may have several: its agent opens one to each address of a server that it knows, and a new one before the server has noticed the
//! end of an old one. A call goes down the newest; its result may come by any of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tinwright::node::v1::connect_response::Message;
use tinwright::node::v1::{ConnectResponse, DesiredStack, Node, NodeCall, NodeCallResult};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The messages that wait for an agent that does not read. A stream with more is ended.
const MAX_QUEUED: usize = 64;
/// The most streams of one node.
const MAX_STREAMS: usize = 8;
/// The locks for changes of nodes' connections.
const SHARDS: usize = 64;

/// What goes down a stream.
pub type Response = Result<ConnectResponse, Status>;

/// The streams. Clones share them.
#[derive(Clone, Debug)]
pub struct Streams(Arc<StreamTable>);

#[derive(Debug)]
struct StreamTable {
    table: Mutex<Table>,
    /// Incremented when a stream is added.
    added: watch::Sender<u64>,
    shards: [AsyncMutex<()>; SHARDS],
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    nodes: HashMap<String, Vec<Stream>>,
    /// Those who wait for results, by node and call.
    waiting: HashMap<(String, String), Vec<oneshot::Sender<NodeCallResult>>>,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    boot_id: String,
    down: mpsc::Sender<Response>,
    end: CancellationToken,
    /// The latest assignment that was sent.
    assignment: i64,
    /// The instance whose stack was sent; empty if none was.
    instance_id: String,
}

/// A stream of an agent, for the task that reads it.
#[derive(Debug)]
pub struct Opened {
    /// Its number.
    pub number: u64,
    /// What is to be sent.
    pub down: mpsc::Receiver<Response>,
    /// Cancelled when the stream is to end.
    pub end: CancellationToken,
}

/// A call that was sent.
#[derive(Debug)]
pub struct SentCall {
    /// The result.
    pub result: oneshot::Receiver<NodeCallResult>,
    /// Cancelled when the stream that it was sent by has ended.
    pub ended: CancellationToken,
}

impl Default for Streams {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| AsyncMutex::new(()));
        Self(Arc::new(StreamTable {
            table: Mutex::default(),
            added: watch::Sender::new(0),
            shards,
        }))
    }
}

impl Streams {
    // No statement leaves the table half changed, so a panic elsewhere does not damage it.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the connections of `node`: its record and its streams are changed together.
    pub async fn lock(&self, node: &str) -> AsyncGuard<'_, ()> {
        let sum = node.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.0.shards[sum % SHARDS].lock().await
    }

    /// Adds a stream of `node` in the boot `boot_id`. The oldest one gives way if there are too many.
    pub fn add(&self, node: &str, boot_id: &str) -> Opened {
        let (sender, down) = mpsc::channel(MAX_QUEUED);
        let end = CancellationToken::new();
        let mut table = self.table();
        table.next += 1;
        let number = table.next;
        let streams = table.nodes.entry(node.to_owned()).or_default();
        if streams.len() >= MAX_STREAMS {
            streams.remove(0).end.cancel();
        }
        streams.push(Stream {
            number,
            boot_id: boot_id.to_owned(),
            down: sender,
            end: end.clone(),
            assignment: 0,
            instance_id: String::new(),
        });
        drop(table);
        self.0.added.send_modify(|added| *added += 1);
        Opened { number, down, end }
    }

    /// Removes a stream that has ended. True if the node has no other one here.
    pub fn remove(&self, node: &str, number: u64) -> bool {
        let mut table = self.table();
        let Some(streams) = table.nodes.get_mut(node) else { return true };
        for stream in streams.extract_if(.., |stream| stream.number == number) {
            stream.end.cancel();
        }
        let is_last = streams.is_empty();
        if is_last {
            table.nodes.remove(node);
        }
        is_last
    }

    /// Ends the streams of `node` that are not of the boot `boot_id`.
    pub fn end_others(&self, node: &str, boot_id: &str) {
        let table = self.table();
        let streams = table.nodes.get(node).into_iter().flatten();
        streams.filter(|it| it.boot_id != boot_id).for_each(|it| it.end.cancel());
    }

    /// Ends all streams of `node`.
    pub fn end_all(&self, node: &str) {
        let table = self.table();
        table.nodes.get(node).into_iter().flatten().for_each(|stream| stream.end.cancel());
    }

    /// True if `node` has a stream here.
    pub fn has(&self, node: &str) -> bool {
        self.table().nodes.contains_key(node)
    }

    /// Returns the nodes with streams here, each with the boot of the newest.
    pub fn nodes(&self) -> Vec<(String, String)> {
        let table = self.table();
        let newest = table.nodes.iter().filter_map(|(node, streams)| Some((node, streams.last()?)));
        newest.map(|(node, stream)| (node.clone(), stream.boot_id.clone())).collect()
    }

    /// Changes when a stream is added.
    pub fn added(&self) -> watch::Receiver<u64> {
        self.0.added.subscribe()
    }

    /// Sends `call` down the newest stream of `node`; none if there is none.
    pub fn call(&self, node: &str, call: NodeCall) -> Option<SentCall> {
        let mut table = self.table();
        let key = (node.to_owned(), call.call_id.clone());
        let streams = table.nodes.get(node)?;
        let live = |stream: &&Stream| !stream.end.is_cancelled();
        let message = ConnectResponse { message: Some(Message::Call(call)) };
        for stream in streams.iter().rev().filter(live) {
            if stream.down.try_send(Ok(message.clone())).is_err() {
                // It does not read, or has ended.
                stream.end.cancel();
                continue;
            }
            let (sender, result) = oneshot::channel();
            let ended = stream.end.clone();
            let waiting = table.waiting.entry(key).or_default();
            waiting.retain(|other| !other.is_closed());
            waiting.push(sender);
            return Some(SentCall { result, ended });
        }
        None
    }

    /// Gives `result` to those who wait for it. One that nobody waits for is left aside.
    pub fn answer(&self, node: &str, result: &NodeCallResult) {
        let key = (node.to_owned(), result.call_id.clone());
        let waiting = self.table().waiting.remove(&key).unwrap_or_default();
        for sender in waiting {
            let _gone = sender.send(result.clone());
        }
    }

    /// Forgets those who wait no more for the call `call_id`.
    pub fn forget(&self, node: &str, call_id: &str) {
        let mut table = self.table();
        let key = (node.to_owned(), call_id.to_owned());
        if let Some(waiting) = table.waiting.get_mut(&key) {
            waiting.retain(|sender| !sender.is_closed());
            if waiting.is_empty() {
                table.waiting.remove(&key);
            }
        }
    }

    /// True if a stream of `node` was not sent the assignment `assignment`.
    pub fn wants(&self, node: &str, assignment: i64) -> bool {
        let table = self.table();
        let mut streams = table.nodes.get(node).into_iter().flatten();
        streams.any(|stream| stream.assignment < assignment)
    }

    /// Sends `desired`, the stack of the instance on `node` or a removal, down the streams of its present boot that were not sent it. A stream
    /// that was sent the stack of another instance ends instead: its agent connects again, and its identity is checked again.
    pub fn send_desired(&self, node: &Node, desired: &DesiredStack) {
        let mut table = self.table();
        let streams = table.nodes.get_mut(&node.id).into_iter().flatten();
        // One of an earlier boot may not have noticed its end yet.
        let streams = streams.filter(|it| it.boot_id == node.boot_id && !it.end.is_cancelled());
        for stream in streams.filter(|stream| stream.assignment < desired.assignment) {
            if !desired.stack_id.is_empty() {
                if !stream.instance_id.is_empty() && stream.instance_id != node.instance_id {
                    stream.end.cancel();
                    continue;
                }
                stream.instance_id.clone_from(&node.instance_id);
            }
            let message = Message::DesiredStack(desired.clone());
            match stream.down.try_send(Ok(ConnectResponse { message: Some(message) })) {
                Ok(()) => stream.assignment = desired.assignment,
                Err(_) => stream.end.cancel(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> NodeCall {
        NodeCall { call_id: id.into(), ..NodeCall::default() }
    }

    /// The node `n` in the boot `boot` with the instance `instance`.
    fn node(boot: &str, instance: &str) -> Node {
        let (boot_id, instance_id) = (boot.to_owned(), instance.to_owned());
        Node { id: "n".into(), boot_id, instance_id, ..Node::default() }
    }

    fn result(id: &str) -> NodeCallResult {
        NodeCallResult { call_id: id.into(), ..NodeCallResult::default() }
    }

    fn sent_call(opened: &mut Opened) -> String {
        match opened.down.try_recv().unwrap().unwrap().message.unwrap() {
            Message::Call(call) => call.call_id,
            Message::DesiredStack(desired) => panic!("{desired:?}"),
        }
    }

    #[test]
    fn a_call_goes_down_the_newest_stream_and_its_result_comes_by_any() {
        let streams = Streams::default();
        assert!(streams.call("n", call("c")).is_none());
        let (mut old, mut new) = (streams.add("n", "b"), streams.add("n", "b"));
        let mut sent = streams.call("n", call("c")).unwrap();
        assert_eq!(sent_call(&mut new), "c");
        assert!(old.down.try_recv().is_err());
        streams.answer("other", &result("c"));
        streams.answer("n", &result("x"));
        assert!(sent.result.try_recv().is_err());
        streams.answer("n", &result("c"));
        assert_eq!(sent.result.try_recv().unwrap().call_id, "c");
        assert!(!streams.remove("n", new.number));
        assert!(sent.ended.is_cancelled());
        streams.call("n", call("d")).unwrap();
        assert_eq!(sent_call(&mut old), "d");
        assert!(streams.remove("n", old.number) && !streams.has("n"));
    }

    #[test]
    fn a_stream_that_does_not_read_ends_and_another_one_gets_the_call() {
        let streams = Streams::default();
        let (mut old, slow) = (streams.add("n", "b"), streams.add("n", "b"));
        for n in 0..MAX_QUEUED {
            assert!(streams.call("n", call(&n.to_string())).is_some());
        }
        assert!(!slow.end.is_cancelled());
        streams.call("n", call("last")).unwrap();
        assert!(slow.end.is_cancelled());
        assert_eq!(sent_call(&mut old), "last");
        streams.forget("n", "last");
        assert!(!streams.table().waiting.contains_key(&("n".into(), "last".into())));
    }

    #[test]
    fn each_stream_gets_an_assignment_once_and_those_of_other_boots_end() {
        let streams = Streams::default();
        let (first, mut second) = (streams.add("n", "b1"), streams.add("n", "b2"));
        let desired = DesiredStack { assignment: 3, ..DesiredStack::default() };
        assert!(streams.wants("n", 3) && !streams.wants("x", 3));
        streams.end_others("n", "b2");
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
        streams.send_desired(&node("b2", ""), &desired);
        streams.send_desired(&node("b2", ""), &desired);
        assert!(second.down.try_recv().is_ok() && second.down.try_recv().is_err());
        assert!(first.down.is_empty(), "it is of another boot, and has not ended yet");
        assert_eq!(streams.nodes(), [("n".to_owned(), "b2".to_owned())]);
    }

    #[test]
    fn a_stream_that_had_the_stack_of_another_instance_ends_and_does_not_get_a_stack() {
        let streams = Streams::default();
        let stack = |assignment, stack_id: &str| {
            let stack_id = stack_id.to_owned();
            DesiredStack { assignment, stack_id, ..DesiredStack::default() }
        };
        let assignment = |opened: &mut Opened| match opened.down.try_recv().ok()?.unwrap().message {
            Some(Message::DesiredStack(desired)) => Some(desired.assignment),
            other => panic!("{other:?}"),
        };
        let mut first = streams.add("n", "b");
        // Removals belong to no instance: one comes before the first stack, and one after it.
        for (number, stack_id, instance) in
            [(1, "", ""), (2, "s", "i"), (3, "t", "i"), (4, "", "i"), (5, "", "")]
        {
            streams.send_desired(&node("b", instance), &stack(number, stack_id));
            assert_eq!(assignment(&mut first), Some(number));
        }
        let mut second = streams.add("n", "b");
        streams.send_desired(&node("b", "j"), &stack(6, "s"));
        assert_eq!((assignment(&mut first), first.end.is_cancelled()), (None, true));
        assert_eq!((assignment(&mut second), second.end.is_cancelled()), (Some(6), false));
    }

    #[test]
    fn the_oldest_of_too_many_streams_gives_way() {
        let streams = Streams::default();
        let opened: Vec<_> = (0..=MAX_STREAMS).map(|_| streams.add("n", "b")).collect();
        assert!(opened[0].end.is_cancelled() && !opened[1].end.is_cancelled());
    }
}
