import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

import org.eclipse.jgit.internal.storage.file.FileReftableDatabase;
import org.eclipse.jgit.internal.storage.file.FileRepository;
import org.eclipse.jgit.lib.BatchRefUpdate;
import org.eclipse.jgit.lib.NullProgressMonitor;
import org.eclipse.jgit.lib.ObjectId;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.lib.RefDatabase;
import org.eclipse.jgit.lib.ReflogEntry;
import org.eclipse.jgit.lib.ReflogReader;
import org.eclipse.jgit.revwalk.RevWalk;
import org.eclipse.jgit.transport.ReceiveCommand;

/**
 * Reads and writes a repository with JGit, an implementation of reftable that shares no code with
 * Git's and none with ours.
 *
 * <p>The first argument is the repository's folder. Then one command; what it prints is made for
 * programs: one record per line, fields separated by a space.
 *
 * <pre>
 * list            every ref: name, object or -, symref target or -, peeled object or -
 * log NAME        a reflog, newest first: old, new, seconds, zone in minutes, message
 * find OBJECT     the names of the refs that point at an object
 * update          a batch from standard input: name old new message; prints name and result
 * compact         makes one table of the stack
 * </pre>
 */
public final class Interop {
    private Interop() {}

    public static void main(String[] args) throws Exception {
        try (FileRepository repository = new FileRepository(new File(args[0]))) {
            switch (args[1]) {
                case "list" -> list(repository.getRefDatabase());
                case "log" -> log(repository.getRefDatabase(), args[2]);
                case "find" -> find(repository.getRefDatabase(), ObjectId.fromString(args[2]));
                case "update" -> update(repository);
                case "compact" -> ((FileReftableDatabase) repository.getRefDatabase()).compactFully();
                default -> throw new IllegalArgumentException(args[1]);
            }
        }
        System.out.flush();
    }

    private static void list(RefDatabase refs) throws Exception {
        for (Ref ref : sorted(refs.getRefsByPrefix(RefDatabase.ALL))) {
            String target = ref.isSymbolic() ? ref.getTarget().getName() : "-";
            ObjectId id = ref.isSymbolic() ? null : ref.getObjectId();
            System.out.println(ref.getName() + " " + text(id) + " " + target + " "
                    + text(ref.isSymbolic() ? null : ref.getPeeledObjectId()));
        }
    }

    private static void log(RefDatabase refs, String name) throws Exception {
        ReflogReader reader = refs.getReflogReader(name);
        for (ReflogEntry entry : reader.getReverseEntries()) {
            PersonIdent who = entry.getWho();
            System.out.println(entry.getOldId().name() + " " + entry.getNewId().name() + " "
                    + who.getWhenAsInstant().getEpochSecond() + " "
                    + who.getZoneOffset().getTotalSeconds() / 60 + " "
                    + entry.getComment().stripTrailing());
        }
    }

    private static void find(RefDatabase refs, ObjectId id) throws Exception {
        for (Ref ref : sorted(refs.getTipsWithSha1(id))) {
            System.out.println(ref.getName());
        }
    }

    private static void update(FileRepository repository) throws Exception {
        BatchRefUpdate batch = repository.getRefDatabase().newBatchUpdate();
        batch.setAllowNonFastForwards(true);
        batch.setAtomic(true);
        batch.setForceRefLog(true);
        batch.setRefLogIdent(new PersonIdent("Jay Tester", "jay@example.org"));
        String message = "";
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null;) {
            String[] fields = line.split(" ", 4);
            ObjectId old = ObjectId.fromString(fields[1]);
            ObjectId fresh = ObjectId.fromString(fields[2]);
            batch.addCommand(new ReceiveCommand(old, fresh, fields[0]));
            message = fields[3];
        }
        batch.setRefLogMessage(message, false);
        try (RevWalk walk = new RevWalk(repository)) {
            batch.execute(walk, NullProgressMonitor.INSTANCE);
        }
        for (ReceiveCommand command : batch.getCommands()) {
            System.out.println(command.getRefName() + " " + command.getResult());
        }
    }

    private static List<Ref> sorted(Iterable<Ref> refs) {
        List<Ref> list = new ArrayList<>();
        refs.forEach(list::add);
        list.sort(Comparator.comparing(Ref::getName));
        return list;
    }

    private static String text(ObjectId id) {
        return id == null ? "-" : id.name();
    }
}
