use super::*;
use crate::ial::requests::Named;

fn grant() -> addr::Grant {
    let labels = [(INSTANCE, "i1"), (LOCATION, "kir1"), (HUB, "h")];
    addr::Grant {
        id: "g".into(),
        block: "198.51.100.52/32".into(),
        labels: labels.map(|(key, text)| (key.to_owned(), text.to_owned())).into(),
        ..addr::Grant::default()
    }
}

fn wanted() -> Release {
    let (server, location) = ("i1".to_owned(), "kir1".to_owned());
    Release {
        named: Named { server, location, model: None, zone: None },
        family: addr::AddressFamily::Ipv4,
        ip: "ip-g".into(),
        assignment: "ipa-g".into(),
        cidr: "198.51.100.52/32".parse().unwrap(),
        configuration: None,
    }
}

#[test]
fn a_release_names_what_was_granted() {
    let check = |change: fn(&mut Release)| {
        let mut wanted = wanted();
        change(&mut wanted);
        check_same(&grant(), &wanted)
    };
    assert_eq!(check(|_| {}), Ok(()));
    assert_eq!(check(|it| it.family = addr::AddressFamily::Ipv6), Err("kind"));
    assert_eq!(check(|it| it.cidr = "198.51.100.53/32".parse().unwrap()), Err("cidr"));
    assert_eq!(check(|it| it.cidr = "198.51.100.52/31".parse().unwrap()), Err("cidr"));
    assert_eq!(check(|it| it.named.server = "i2".into()), Err("server_id"));
    assert_eq!(check(|it| it.named.location = "kir2".into()), Err("location_id"));
}
