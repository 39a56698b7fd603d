//! Metadata: HTTP requests to the whole service, without sockets.
//!
//! An input is an octet that selects the client's address, followed by a request with head and body.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use fleet::Fleet;
use metadata::Index;
use metadata::http::{Config, NotStored, PhoneHome, PhoneHomeCall, Service, TrustedProxies};
use metadata::path::Path;
use metadata::token::Tokens;
use runtime::Clock;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1::policy::MetadataTokens;
use tinwright::hardware::v1::{Hardware, Policy};
use tokio::runtime::Runtime;

use crate::site::{LOOKUP_ID, NODE1, NODE2, RELAY, SECRET, instance, machines};
use crate::{Target, http_text};

/// Address of a client that has no record. It must never get the secret.
const UNKNOWN_CLIENT: [u8; 4] = [198, 51, 100, 77];

/// Discards phone-home calls.
struct DiscardPhoneHome;

#[async_trait]
impl PhoneHome for DiscardPhoneHome {
    async fn report(&self, _: PhoneHomeCall) -> Result<(), NotStored> {
        Ok(())
    }
}

/// Two services: one with optional session tokens, one with required tokens and rate limits.
#[derive(Debug)]
pub struct Imds {
    runtime: Runtime,
    services: [Service; 2],
    token_headers: Vec<Vec<u8>>,
}

impl Imds {
    /// Creates the services. They serve both machines, and the relay is a trusted proxy.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let services =
            [service(MetadataTokens::Optional, false)?, service(MetadataTokens::Required, true)?];
        Ok(Self { runtime, services, token_headers: token_headers()? })
    }

    /// Returns status and body of the response to `input`. None if `input` has no well-formed request.
    fn send(
        &self,
        service: &Service,
        input: &[u8],
    ) -> anyhow::Result<Option<(StatusCode, Vec<u8>)>> {
        let Some(request) = request(input) else { return Ok(None) };
        let response = self.runtime.block_on(async {
            let client = SocketAddr::new(client_address(input), 4711);
            let (head, body) = service.respond(client, request).await.into_parts();
            anyhow::Ok((head.status, to_bytes(body, usize::MAX).await?.to_vec()))
        });
        response.map(Some)
    }
}

impl Target for Imds {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let requests = [
            "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
            "GET /latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\nUser-Agent: Cloud-Init/22.4.2\r\n\r\n",
            "GET /2009-04-04/meta-data/public-keys/0/openssh-key HTTP/1.1\r\n\r\n",
            "GET /latest/user-data HTTP/1.1\r\nIf-None-Match: \"x\", W/\"y\"\r\n\r\n",
            "GET /latest/dynamic/instance-identity/document HTTP/1.1\r\n\r\n",
            "GET /latest/meta-data/network/interfaces/macs/52:54:00:00:00:01/mac HTTP/1.1\r\n\r\n",
            "PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n\r\n",
            "GET /openstack/latest/network_data.json HTTP/1.1\r\nX-Forwarded-For: 198.51.100.50\r\n\r\n",
            "GET /openstack/2018-08-27/meta_data.json HTTP/1.1\r\nForwarded: for=198.51.100.60\r\n\r\n",
            "GET /nocloud/network-config HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n",
            "GET /nocloud/00112233445566778899aabbccddeeff/user-data HTTP/1.1\r\n\r\n",
            "GET /metadata HTTP/1.1\r\n\r\n",
            "POST /phone-home HTTP/1.1\r\n\r\ninstance_id=i-0001&hostname=node1&pub_key_rsa=ssh-rsa+AAAA",
            "POST /phone-home HTTP/1.1\r\n\r\n{\"instance_id\": \"i-0001\", \"type\": \"x\"}",
            "POST /events HTTP/1.1\r\n\r\n{\"state\": \"running\", \"message\": \"x\"}",
        ];
        let from = |client: u8| move |request: &&str| [&[client], request.as_bytes()].concat();
        (0..=3).flat_map(|client| requests.iter().map(from(client)).collect::<Vec<_>>()).collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let words = [
            "GET ",
            "HEAD ",
            "PUT ",
            "POST ",
            "OPTIONS ",
            "/",
            "//",
            "/latest",
            "/meta-data",
            "/user-data",
            "/dynamic",
            "/api/token",
            "/openstack",
            "/nocloud",
            "/1.0",
            "/2009-04-04",
            "/2099-01-01",
            "..",
            "%2e%2e",
            "%2f",
            "%00",
            "%ff",
            "%",
            "?",
            "#",
            "public-keys",
            "0=",
            "macs/52:54:00:00:00:01/",
            "X-Forwarded-For: 198.51.100.50\r\n",
            "Forwarded: for=\"198.51.100.50:1\"\r\n",
            ", ",
            "X-Forwarded-For: ::ffff:198.51.100.50, 198.51.100.254\r\n",
            "X-aws-ec2-metadata-token-ttl-seconds: 1\r\n",
            "Host: metadata.lab:80\r\n",
            "Host: [::1]\r\n",
            "If-None-Match: *\r\n",
            "\r\n",
            "\r\n\r\n",
            "{\"",
            "\": {\"",
            "[[[[[[[[",
            "pub_key_",
            "\u{85}",
        ];
        words
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .chain(self.token_headers.clone())
            .collect()
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let client = client_address(input);
        let may_read = client == IpAddr::from(NODE1) || client == IpAddr::from(RELAY);
        let has_lookup_id = request(input).is_some_and(|request| has_lookup_id(&request));
        for service in &self.services {
            let Some((status, body)) = self.send(service, input)? else { return Ok(()) };
            anyhow::ensure!(status != StatusCode::INTERNAL_SERVER_ERROR, "{status}");
            let refused = status.is_client_error() || status.is_server_error();
            anyhow::ensure!(!refused || body.is_empty(), "error response {status} has a body");
            let has_secret = body.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            anyhow::ensure!(
                may_read || has_lookup_id || !has_secret,
                "response to {client} has another machine's secret"
            );
        }
        Ok(())
    }
}

fn service(tokens: MetadataTokens, rate_limits: bool) -> anyhow::Result<Service> {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    let policy = Policy { metadata_tokens: tokens.into(), ..Policy::default() };
    let records = machines().map(|record| Hardware { policy: Some(policy.clone()), ..record });
    fleet.hardware(FeedEvent::Snapshot(records.into()));
    fleet.instance(FeedEvent::Snapshot(vec![instance()]));
    let relay = Ipv4Addr::from(RELAY);
    let trusted_proxies = TrustedProxies::new([format!("{relay}/32").parse()?])?;
    let config = Config { trusted_proxies, rate_limits, ..Config::default() };
    let tokens = Tokens::new(&runtime::SiteKey::new([7; 32]))?;
    Ok(Service::new(index, tokens, Arc::new(DiscardPhoneHome), config, Clock::system()))
}

/// Returns headers with session tokens: one of each machine, an expired one, and one made with another site's key.
fn token_headers() -> anyhow::Result<Vec<Vec<u8>>> {
    let now = std::time::SystemTime::now();
    let tokens_of = |key| Tokens::new(&runtime::SiteKey::new([key; 32]));
    let (own_site, other_site) = (tokens_of(7)?, tokens_of(8)?);
    let [_, second] = machines();
    let tokens = [
        own_site.mint("i-0001", 21_600, now)?,
        own_site.mint(&second.id, 21_600, now)?,
        own_site.mint("i-0001", 1, std::time::SystemTime::UNIX_EPOCH)?,
        other_site.mint("i-0001", 21_600, now)?,
    ];
    Ok(tokens.map(|token| format!("X-aws-ec2-metadata-token: {token}\r\n").into_bytes()).into())
}

/// Returns the client's address, which the first octet selects.
fn client_address(input: &[u8]) -> IpAddr {
    match input.first() {
        None | Some(0) => Ipv4Addr::from(NODE1).into(),
        Some(1) => Ipv4Addr::from(NODE2).into(),
        Some(2) => Ipv4Addr::from(RELAY).into(),
        Some(3) => Ipv4Addr::from(UNKNOWN_CLIENT).into(),
        Some(other) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, (*other).into()).into(),
    }
}

/// True if the path contains the lookup id of the first machine's instance, which permits the access from any address.
fn has_lookup_id(request: &Request) -> bool {
    let path = Path::parse(request.uri().path());
    path.is_some_and(|path| path.segments().iter().any(|part| part.eq_ignore_ascii_case(LOOKUP_ID)))
}

/// Parses the request in `input`. None if an HTTP server would refuse it before the service.
fn request(input: &[u8]) -> Option<Request> {
    let (_, text) = input.split_first()?;
    let (head, body) = http_text::split(text)?;
    http_text::request(head, body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_requests_succeed_and_the_machine_gets_its_user_data() {
        let target = Imds::new().unwrap();
        let responses: Vec<_> = target
            .corpus()
            .iter()
            .map(|input| target.send(&target.services[0], input).unwrap().unwrap())
            .collect();
        let succeeded = responses.iter().filter(|(status, _)| *status == StatusCode::OK).count();
        assert!(succeeded > responses.len() / 3, "{succeeded}");
        let user_data = String::from_utf8_lossy(&responses[3].1).into_owned();
        assert!(user_data.contains(SECRET), "{user_data}");
    }
}
