//! HTTPS before a peer, with a certificate of an authority that nobody knows.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    /// The authority's certificate, as a file.
    pub(crate) authority: NamedTempFile,
    _task: AbortOnDropHandle<()>,
}

impl Front {
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut authority = NamedTempFile::new().unwrap();
        authority.write_all(issuer.pem().as_bytes()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = names.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let passing = tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
                connections.push(AbortOnDropHandle::new(passing));
            }
        });
        Self {
            address,
            authority,
            _task: AbortOnDropHandle::new(task),
        }
    }
}
