//! A relay in front of ipmi_sim that opens sessions up to a privilege level only, as a BMC does for
//! an account with that level. ipmi_sim ignores the level of an account that is looked up by its
//! name alone, as `ipmitool` does, and opens sessions at every level.

use std::io;
use std::net::SocketAddr;

use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::{PASSWORD, bmc};

/// The privilege level USER (IPMI 2.0 §6.8).
pub(super) const USER: u8 = 2;
/// The privilege level OPERATOR.
pub(super) const OPERATOR: u8 = 3;

/// The bytes before the payload of a packet outside a session (IPMI 2.0 §13.6).
const HEADER_BYTES: usize = 16;
/// The start of a packet of RMCP with IPMI.
const RMCP: [u8; 4] = [0x06, 0x00, 0xff, 0x07];
/// The type of authentication of RMCP+.
const RMCP_PLUS: u8 = 0x06;
/// The type of a payload that is RAKP message 1 (IPMI 2.0 §13.20).
const RAKP_1: u8 = 0x12;
/// The type of a payload that is RAKP message 2 (IPMI 2.0 §13.21).
const RAKP_2: u8 = 0x13;
/// The position of the privilege level in RAKP message 1.
const ROLE: usize = 24;
/// The status code of a privilege level that the account does not have (IPMI 2.0 §13.24).
const UNAUTHORIZED_ROLE: u8 = 0x0a;

/// A running relay. It ends when it is dropped.
pub(super) struct PrivilegeLimit {
    port: u16,
    task: JoinHandle<io::Result<()>>,
}

impl PrivilegeLimit {
    /// Starts a relay to the simulator at `address` that opens sessions up to the level `limit`.
    pub(super) async fn start(address: SocketAddr, limit: u8) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = front.local_addr().unwrap().port();
        Self { port, task: tokio::spawn(relay(front, address, limit)) }
    }

    /// Its record for `hardware`.
    pub(super) fn bmc(&self, hardware: HardwareId) -> pb::Bmc {
        bmc(hardware, self.port, PASSWORD)
    }
}

impl Drop for PrivilegeLimit {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(front: UdpSocket, address: SocketAddr, limit: u8) -> io::Result<()> {
    let back = UdpSocket::bind("127.0.0.1:0").await?;
    back.connect(address).await?;
    let (mut request, mut response) = ([0; 1024], [0; 1024]);
    // One `ipmitool` runs at a time.
    let mut client = None;
    loop {
        tokio::select! {
            received = front.recv_from(&mut request) => {
                let (length, from) = received?;
                client = Some(from);
                match refusal(&request[..length], limit) {
                    Some(refusal) => front.send_to(&refusal, from).await?,
                    None => back.send(&request[..length]).await?,
                };
            }
            received = back.recv(&mut response) => {
                let length = received?;
                if let Some(client) = client {
                    front.send_to(&response[..length], client).await?;
                }
            }
        }
    }
}

/// Returns the answer to a RAKP message 1 that requests a higher level than `limit`; none for any
/// other packet.
fn refusal(packet: &[u8], limit: u8) -> Option<Vec<u8>> {
    let is_rakp_1 = packet.get(RMCP.len()..)?.starts_with(&[RMCP_PLUS, RAKP_1]);
    let payload = packet.get(HEADER_BYTES..)?;
    let (tag, role) = (*payload.first()?, *payload.get(ROLE)?);
    if !is_rakp_1 || role & 0x0f <= limit {
        return None;
    }
    // Neither a session nor a sequence number, and the length of the payload.
    let header = [&RMCP[..], &[RMCP_PLUS, RAKP_2], &[0; 8], &[8, 0]].concat();
    Some([header, vec![tag, UNAUTHORIZED_ROLE, 0, 0, 0, 0, 0, 0]].concat())
}
