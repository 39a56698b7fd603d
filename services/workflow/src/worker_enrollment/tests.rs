//! Boot tokens are redeemed for certificates.

use runtime::SiteKey;
use store::memory::MemoryStore;

use super::*;

/// Issues the URI of the caller.
struct NameIssuer;

impl Issuer for NameIssuer {
    fn issue(&self, caller: &Caller, _: &[u8]) -> Result<IssuedCertificate, IssueError> {
        Ok(IssuedCertificate { certificate: caller.to_string(), expires: SystemTime::UNIX_EPOCH })
    }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn tokens() -> BootTokens {
    BootTokens::new(&SiteKey::new([1; 32])).unwrap()
}

fn enrollment() -> WorkerEnrollment {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "workflow");
    WorkerEnrollment::new(store, Arc::new(tokens()), Arc::new(NameIssuer))
}

fn token(machine: HardwareId) -> String {
    tokens().mint(Purpose::Identity, machine, 0, HERE, SystemTime::now()).unwrap()
}

/// A certificate request for a new key.
pub(crate) fn csr() -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
}

impl WorkerEnrollment {
    /// Verifies and redeems a token that `boot` sends from `from`.
    async fn redeem_from(
        &self,
        token: &str,
        csr: &[u8],
        (boot, from): (&str, Option<IpAddr>),
        now: SystemTime,
    ) -> Result<IssuedCertificate, Error> {
        self.redeem(&self.verify(token, csr, from, now)?, csr, &boot.into(), now).await
    }
}

#[tokio::test]
async fn a_token_may_be_redeemed_again_with_the_same_key_and_not_with_another() {
    let (enrollment, machine) = (enrollment(), HardwareId::new());
    let (csr_one, csr_two) = (csr(), csr());
    let token = token(machine);
    let redeem = |csr| {
        let (enrollment, token) = (&enrollment, &token);
        async move { enrollment.redeem_from(token, csr, ("b1", Some(HERE)), SystemTime::now()).await }
    };
    let issued = redeem(&csr_one).await.unwrap();
    assert_eq!(issued.certificate, format!("tinwright:machine:{machine}"));
    assert!(redeem(&csr_one).await.is_ok(), "its response may have been lost");
    assert!(matches!(redeem(&csr_two).await, Err(Error::Spent)));
    assert!(redeem(&csr_one).await.is_ok(), "the first key is still accepted");
}

#[tokio::test]
async fn a_token_may_be_redeemed_again_by_the_same_boot_and_not_by_another() {
    let (enrollment, token, csr) = (enrollment(), token(HardwareId::new()), csr());
    let redeem = |boot| {
        let (enrollment, token, csr) = (&enrollment, &token, &csr);
        async move { enrollment.redeem_from(token, csr, (boot, Some(HERE)), SystemTime::now()).await }
    };
    assert!(redeem("b1").await.is_ok());
    assert!(redeem("b1").await.is_ok());
    for other in ["b2", ""] {
        assert!(matches!(redeem(other).await, Err(Error::OtherBoot)), "{other}");
    }
    assert!(redeem("b1").await.is_ok(), "the first boot is still accepted");
}

#[tokio::test]
async fn a_token_is_valid_only_at_its_address_before_its_expiry_and_with_a_request() {
    let (enrollment, token, csr, now) =
        (enrollment(), token(HardwareId::new()), csr(), SystemTime::now());
    let redeem = |csr, from, now| {
        let (enrollment, token) = (&enrollment, &token);
        async move { enrollment.redeem_from(token, csr, ("b1", from), now).await }
    };
    let elsewhere = redeem(&csr, Some([192, 0, 2, 8].into()), now).await;
    assert!(matches!(elsewhere, Err(Error::WrongAddress(_))));
    let late = redeem(&csr, Some(HERE), now + runtime::boot_token::LIFETIME).await;
    assert!(matches!(late, Err(Error::InvalidToken(InvalidToken::Expired))));
    let malformed = b"x".to_vec();
    let none = redeem(&malformed, Some(HERE), now).await;
    assert!(matches!(none, Err(Error::NotIssued(IssueError::Request))));
    let mapped = Some("::ffff:192.0.2.7".parse().unwrap());
    assert!(redeem(&csr, mapped, now).await.is_ok());
}

#[tokio::test]
async fn a_spent_token_is_deleted_after_its_expiry() {
    let (enrollment, now) = (enrollment(), SystemTime::now());
    let token = token(HardwareId::new());
    enrollment.redeem_from(&token, &csr(), ("b1", None), now).await.unwrap();
    assert_eq!(enrollment.delete_expired(now).await.unwrap(), 0);
    assert_eq!(enrollment.delete_expired(now + 2 * SPENT_TOKEN_MARGIN).await.unwrap(), 1);
}

/// The token of a boot of the node `machine`, made `age` ago.
fn node_token(machine: HardwareId, age: Duration) -> String {
    tokens().mint(Purpose::Node, machine, 0, HERE, SystemTime::now() - age).unwrap()
}

#[tokio::test]
async fn each_boot_of_a_node_ends_the_identities_of_the_one_before() {
    let (enrollment, machine, now) = (enrollment(), HardwareId::new(), SystemTime::now());
    let minute = Duration::from_secs(60);
    let [first, second] = [node_token(machine, 2 * minute), node_token(machine, Duration::ZERO)];
    let (csr, earlier) = (csr(), now - minute);
    let name = |epoch: u64| format!("tinwright:machine:{machine}?epoch={epoch}&purpose=node");
    let redeem = async |token: &str, boot, now| {
        enrollment.redeem_from(token, &csr, (boot, Some(HERE)), now).await
    };
    assert_eq!(redeem(&first, "b1", earlier).await.unwrap().certificate, name(1));
    let again = redeem(&first, "b1", earlier).await.unwrap();
    assert_eq!(again.certificate, name(1), "its response may have been lost");
    assert_eq!(enrollment.epochs.present(&machine.to_string()).await.unwrap().number, 1);
    assert_eq!(redeem(&second, "b2", now).await.unwrap().certificate, name(2));
    let late = redeem(&first, "b1", now).await;
    assert!(matches!(late, Err(Error::OtherEpoch)), "of the former boot: {late:?}");
}

#[tokio::test]
async fn a_container_on_a_node_gets_no_second_identity_by_its_token_nor_by_another_one() {
    let (enrollment, machine, now) = (enrollment(), HardwareId::new(), SystemTime::now());
    let minute = Duration::from_secs(60);
    let [first, second] = [node_token(machine, 2 * minute), node_token(machine, Duration::ZERO)];
    let [agents, containers] = [csr(), csr()];
    let redeem = async |token: &str, csr: &[u8], boot| {
        enrollment.redeem_from(token, csr, (boot, Some(HERE)), now - minute).await
    };
    redeem(&first, &agents, "b1").await.unwrap();
    // The kernel's command line shows the agent's token to every process on the node.
    let shown = redeem(&first, &containers, "b1").await;
    assert!(matches!(shown, Err(Error::Spent)), "{shown:?}");
    let another = redeem(&second, &containers, "b1").await;
    assert!(matches!(another, Err(Error::SecondToken)), "{another:?}");
    let unnamed = redeem(&second, &containers, "").await;
    assert!(matches!(unnamed, Err(Error::UnnamedBoot)), "{unnamed:?}");
    assert_eq!(enrollment.epochs.present(&machine.to_string()).await.unwrap().number, 1);
}

#[tokio::test]
async fn a_node_gets_no_identity_while_a_workflow_waits_for_its_preparation() {
    let (enrollment, machine) = (enrollment(), HardwareId::new());
    let token = node_token(machine, Duration::ZERO);
    let options = pb::BootOptions { mode: Mode::Netboot.into(), power_off_after: false };
    let holder = pb::Workflow {
        id: tinwright::WorkflowId::new().to_string(),
        hardware_id: machine.to_string(),
        boot_options: Some(options),
        state: pb::WorkflowState::Preparing.into(),
        create_time: Some(SystemTime::now().into()),
        ..pb::Workflow::default()
    };
    enrollment.workflows.commit(enrollment.workflows.to_create(&holder)).await.unwrap();
    let from = ("b1", Some(HERE));
    let refused = enrollment.redeem_from(&token, &csr(), from, SystemTime::now()).await;
    assert!(matches!(refused, Err(Error::NotPrepared)), "{refused:?}");
}
