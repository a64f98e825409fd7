import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.time.Instant;
import java.time.ZoneOffset;

import org.eclipse.jgit.internal.storage.reftable.ReftableConfig;
import org.eclipse.jgit.internal.storage.reftable.ReftableWriter;
import org.eclipse.jgit.lib.ObjectId;
import org.eclipse.jgit.lib.ObjectIdRef;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.lib.Ref.Storage;
import org.eclipse.jgit.lib.SymbolicRef;

/**
 * Writes the tables crates/reftable/tests/data/jgit-*.ref with JGit.
 *
 * Usage: java -cp JGIT_JAR:SLF4J_JARS scripts/JgitTables.java FOLDER
 *
 * The content is a function of the record's number, which tests/jgit.rs repeats.
 */
public class JgitTables {
    static ObjectId id(int n) {
        return ObjectId.fromString(String.format("%08x", n * 2654435761L & 0xffffffffL).repeat(5));
    }

    static Ref ref(int n) {
        String name = String.format("refs/heads/topic-%04d", n);
        switch (n % 8) {
        case 0:
            return new ObjectIdRef.Unpeeled(Storage.NEW, name, null);
        case 1:
            return new ObjectIdRef.PeeledTag(Storage.PACKED, name, id(n), id(n / 20));
        case 2:
            return new SymbolicRef(name, new ObjectIdRef.Unpeeled(Storage.NEW, "refs/heads/x", null));
        default:
            return new ObjectIdRef.PeeledNonTag(Storage.PACKED, name, id(n / 2));
        }
    }

    static void write(File file, ReftableConfig config, int refs, int logs) throws Exception {
        try (OutputStream out = new FileOutputStream(file)) {
            ReftableWriter writer = new ReftableWriter(config, out);
            writer.setMinUpdateIndex(3).setMaxUpdateIndex(9).begin();
            for (int n = 0; n < refs; n++)
                writer.writeRef(ref(n), 3 + n % 7);
            for (int n = 0; n < logs; n++) {
                String name = String.format("refs/heads/topic-%04d", n);
                PersonIdent who = new PersonIdent("Ann Tester", "ann@example.org",
                        Instant.ofEpochSecond(1_700_000_000L + n), ZoneOffset.ofHours(2));
                writer.writeLog(name, 9, who, id(n), id(n + 1), "message " + n);
                if (n % 3 == 0)
                    writer.deleteLog(name, 5);
            }
            writer.finish();
        }
    }

    static ReftableConfig config(int blockSize, boolean align, int levels) {
        ReftableConfig config = new ReftableConfig();
        config.setRefBlockSize(blockSize);
        config.setLogBlockSize(blockSize);
        config.setAlignBlocks(align);
        config.setMaxIndexLevels(levels);
        return config;
    }

    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        write(new File(folder, "jgit-small.ref"), config(4096, true, 0), 9, 9);
        write(new File(folder, "jgit-aligned.ref"), config(512, true, 0), 400, 200);
        write(new File(folder, "jgit-unaligned.ref"), config(512, false, 0), 400, 200);
        write(new File(folder, "jgit-one-level.ref"), config(512, true, 1), 400, 200);
        write(new File(folder, "jgit-log-only.ref"), config(512, true, 0), 0, 40);
    }
}
