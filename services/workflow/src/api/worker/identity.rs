//! The identities of machines: a certificate for the one-time token of a boot, and its renewal.

use std::net::IpAddr;
use std::time::Duration;

use runtime::boot_token::InvalidToken;
use runtime::neighbour::{self, SourceCheck};
use runtime::serve::ConnectionAddresses;
use runtime::{Caller, MachinePurpose, Role};
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::{BootId, Mac, check};
use tonic::{Request, Status};

use super::caller::MachineCaller;
use crate::api::Api;
use crate::record::size::MAX_HOLDER_ID_BYTES;
use crate::worker_enrollment::{self, IssueError};

/// Pause of a machine that enrols while too many others do.
const ENROLMENT_RETRY: Duration = Duration::from_secs(20);

impl Api {
    /// Issues the first certificate of a boot for its token, to a caller at `from`.
    pub(super) async fn redeem_token(
        &self,
        request: pb::RedeemRequest,
        from: Option<IpAddr>,
    ) -> Result<pb::RedeemResponse, Status> {
        let pb::RedeemRequest { boot_token, csr, holder } = request;
        let boot = redeeming_boot(holder)?;
        let token = match self.enrollment.verify(&boot_token, &csr, from, self.clock.wall()) {
            Err(worker_enrollment::Error::InvalidToken(InvalidToken::Foreign)) => {
                return self.redeem_for_enrolment(&boot_token, &csr, from, &boot).await;
            }
            result => result?,
        };
        let record = self.record(token.machine()).await?;
        let macs = record.interfaces.iter().filter_map(|interface| interface.mac.parse().ok());
        self.check_neighbour(&record.id, macs, from).await?;
        if token.is_node() {
            self.agents.check(token.machine(), &boot).await?;
        }
        let issued = self.enrollment.redeem(&token, &csr, &boot, self.clock.wall()).await?;
        tracing::info!(hardware.id = record.id, boot = boot.0, "machine identified");
        Ok(pb::RedeemResponse {
            certificate: issued.certificate,
            hardware_id: record.id,
            expire_time: Some(issued.expires.into()),
            enrols: false,
        })
    }

    /// Redeems the token of a machine without a record.
    async fn redeem_for_enrolment(
        &self,
        token: &str,
        csr: &[u8],
        from: Option<IpAddr>,
        boot: &BootId,
    ) -> Result<pb::RedeemResponse, Status> {
        let claims = self.enrollment.verify_for_enrolment(token, csr, from, self.clock.wall())?;
        let id = claims.id.to_string();
        self.check_neighbour(&id, [claims.mac].into_iter(), from).await?;
        let issued = self.enrollment.redeem_for_enrolment(&claims, csr, boot).await?;
        tracing::info!(enrolment.id = id, mac = %claims.mac, "machine without a record identified");
        Ok(pb::RedeemResponse {
            certificate: issued.certificate,
            hardware_id: id,
            expire_time: Some(issued.expires.into()),
            enrols: true,
        })
    }

    /// Issues the next certificate of a worker or a node.
    pub(super) async fn renew_certificate(
        &self,
        request: &Request<pb::RenewRequest>,
    ) -> Result<pb::RenewResponse, Status> {
        let (machine, caller) = renewing(request)?;
        self.check_is_present(&machine).await?;
        self.record(machine.machine).await?;
        let issued = self.enrollment.renew(caller, &request.get_ref().csr);
        let issued = issued.map_err(worker_enrollment::Error::from)?;
        let (certificate, expire_time) = (issued.certificate, Some(issued.expires.into()));
        Ok(pb::RenewResponse { certificate, expire_time })
    }

    /// Refuses a caller at `from` that is not the machine `id` with these interfaces, as far as the owner of the address on our link shows.
    async fn check_neighbour(
        &self,
        id: &str,
        macs: impl Iterator<Item = Mac>,
        from: Option<IpAddr>,
    ) -> Result<(), Status> {
        let (Some(from), Some(neighbours)) = (from, &self.neighbours) else { return Ok(()) };
        if self.source == SourceCheck::Address {
            return Ok(());
        }
        let owner = neighbour::owner_of(neighbours, from).await;
        self.source.admits(macs, owner).map_err(|rejected| {
            tracing::error!(hardware.id = id, address = %from, %owner, "boot token refused: {rejected}");
            Status::permission_denied(rejected.to_string())
        })
    }
}

/// Returns the calling machine, a worker's or a node, and the caller that it is.
fn renewing<T>(request: &Request<T>) -> Result<(MachineCaller, &Caller), Status> {
    let caller = request.extensions().get::<Caller>();
    let caller =
        caller.ok_or_else(|| Status::unauthenticated("a machine's certificate is required"))?;
    let Role::Machine(machine, MachinePurpose::Work | MachinePurpose::Node) = caller.role() else {
        return Err(Status::permission_denied("this call is for workers and nodes"));
    };
    Ok((MachineCaller { machine, epoch: caller.boot_epoch() }, caller))
}

/// Returns the address of the caller, if the connection has one.
pub(super) fn peer<T>(request: &Request<T>) -> Option<IpAddr> {
    let forwarded = request.extensions().get::<ConnectionAddresses>().map(|ends| ends.remote);
    forwarded.or_else(|| request.remote_addr()).map(|address| address.ip())
}

/// Returns the boot that redeems a token; empty if it is not named.
fn redeeming_boot(holder: Option<pb::Holder>) -> Result<BootId, Violations> {
    let boot = holder.unwrap_or_default().boot_id;
    let mut wrong = Violations::default();
    wrong.take("holder.boot_id", check::length(&boot, MAX_HOLDER_ID_BYTES));
    wrong.into_result(boot.as_str().into())
}

impl From<worker_enrollment::Error> for Status {
    fn from(error: worker_enrollment::Error) -> Self {
        use worker_enrollment::Error as Cause;
        match error {
            Cause::InvalidToken(_)
            | Cause::WrongAddress(_)
            | Cause::NotPrepared
            | Cause::OtherEpoch
            | Cause::Spent
            | Cause::OtherBoot
            | Cause::SecondToken => Self::permission_denied(error.to_string()),
            Cause::TooManyEnrolments => {
                tinwright::status::overloaded(error.to_string(), ENROLMENT_RETRY)
            }
            Cause::NotIssued(IssueError::Request) => Violations::single("csr", error).into(),
            Cause::NotIssued(IssueError::Authority(cause)) => {
                let error = cause.as_ref() as &dyn std::error::Error;
                tracing::error!(error, "certificate not issued");
                Self::unavailable("no certificate can be issued now")
            }
            Cause::UnnamedBoot => Violations::single("holder.boot_id", "is empty").into(),
            Cause::Records(error) => error.into(),
        }
    }
}
