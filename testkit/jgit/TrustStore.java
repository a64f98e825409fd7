import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;

/** Makes the list of certificates that Java trusts from the one that the host trusts. */
public final class TrustStore {
    private TrustStore() {}

    public static void main(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        int number = 0;
        try (var in = new FileInputStream(new File(args[0]))) {
            for (Certificate trusted :
                    CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                store.setCertificateEntry("host-" + number++, trusted);
            }
        }
        try (var out = new FileOutputStream(new File(args[1]))) {
            store.store(out, "changeit".toCharArray());
        }
    }
}
