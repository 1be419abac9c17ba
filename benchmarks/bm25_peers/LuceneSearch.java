import java.io.BufferedReader;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.StringJoiner;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.FieldType;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.LogByteSizeMergePolicy;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.MMapDirectory;
import org.apache.lucene.util.Version;

/**
 * Lucene on the files of benchmarks/selection.py; reports are JSON, in the form that bm25_peers/worker.py writes.
 *
 * <p>build PASSAGES INDEX REPORT, or search INDEX REPORT CPU_LIMIT SAMPLE and then QUERIES WORDS K FOUND for each run.
 */
public final class LuceneSearch {
  private static final BM25Similarity BM25 = new BM25Similarity(1.2f, 0.75f);
  private static final int WARM_PASSAGES = 20_000;
  private static final double WARM_SECONDS = 3;

  public static void main(String[] args) throws IOException {
    if (args[0].equals("build")) {
      build(Path.of(args[1]), Path.of(args[2]), Path.of(args[3]));
    } else {
      search(args);
    }
  }

  private static void build(Path passages, Path index, Path report) throws IOException {
    index(passages, new ByteBuffersDirectory(), WARM_PASSAGES); // the compiler of the JVM is not to be measured
    double cpu = cpuSeconds();
    long started = System.nanoTime();
    index(passages, new MMapDirectory(index), Integer.MAX_VALUE);
    String form = "{\"version\": \"Lucene %s\", \"cpu_seconds\": %.4f, \"seconds\": %.4f, \"peak_memory\": %d}";
    double seconds = (System.nanoTime() - started) / 1e9;
    Files.writeString(report, String.format(Locale.ROOT, form, Version.LATEST, cpuSeconds() - cpu, seconds, peakMemory()));
  }

  private static void index(Path passages, Directory directory, int most) throws IOException {
    IndexWriterConfig config = new IndexWriterConfig(new WhitespaceAnalyzer());
    config.setSimilarity(BM25);
    config.setRAMBufferSizeMB(256);
    config.setUseCompoundFile(false);
    config.setMergePolicy(new LogByteSizeMergePolicy()); // merges neighbours only, so a document keeps its passage's number
    FieldType type = new FieldType();
    type.setIndexOptions(IndexOptions.DOCS_AND_FREQS);
    type.setTokenized(true);
    type.freeze();
    try (IndexWriter writer = new IndexWriter(directory, config);
        BufferedReader lines = Files.newBufferedReader(passages, StandardCharsets.UTF_8)) {
      String line;
      for (int count = 0; count < most && (line = lines.readLine()) != null; count++) {
        Document document = new Document();
        document.add(new Field("words", line, type));
        writer.addDocument(document);
      }
      writer.commit();
    }
  }

  private static void search(String[] args) throws IOException {
    StringJoiner runs = new StringJoiner(", ");
    double limit = Double.parseDouble(args[3]);
    int sample = Integer.parseInt(args[4]);
    try (DirectoryReader reader = DirectoryReader.open(new MMapDirectory(Path.of(args[1])))) {
      IndexSearcher searcher = new IndexSearcher(reader);
      searcher.setSimilarity(BM25);
      searcher.setQueryCache(null);
      for (int place = 5; place < args.length; place += 4) {
        List<String> queries = Files.readAllLines(Path.of(args[place]), StandardCharsets.UTF_8);
        int k = Integer.parseInt(args[place + 2]);
        answer(searcher, queries, k, WARM_SECONDS, 0, null);
        runs.add(answer(searcher, queries, k, limit, sample, Path.of(args[place + 3])).replace("WORDS", args[place + 1]));
      }
    }
    Files.writeString(Path.of(args[2]), String.format(Locale.ROOT, "{\"runs\": [%s], \"peak_memory\": %d}", runs, peakMemory()));
  }

  /** Returns the report of one run: queries until all are answered or the CPU seconds are spent. */
  private static String answer(IndexSearcher searcher, List<String> queries, int k, double limit, int sample, Path found)
      throws IOException {
    ByteBuffer numbers = ByteBuffer.allocate(4 * sample * k).order(ByteOrder.LITTLE_ENDIAN);
    double cpu = cpuSeconds();
    long started = System.nanoTime();
    int done = 0;
    while (done < queries.size() && (done < sample || cpuSeconds() - cpu < limit)) {
      ScoreDoc[] hits = searcher.search(query(queries.get(done)), k).scoreDocs;
      if (done < sample) {
        for (int place = 0; place < k; place++) {
          numbers.putInt(place < hits.length ? hits[place].doc : -1);
        }
      }
      done++;
    }
    double used = cpuSeconds() - cpu;
    double seconds = (System.nanoTime() - started) / 1e9;
    if (found != null) {
      Files.write(found, numbers.array());
    }
    String form = "{\"words\": WORDS, \"k\": %d, \"queries\": %d, \"cpu_seconds\": %.4f, \"seconds\": %.4f}";
    return String.format(Locale.ROOT, form, k, done, used, seconds);
  }

  private static Query query(String words) {
    BooleanQuery.Builder query = new BooleanQuery.Builder();
    for (String word : words.split(" ")) {
      query.add(new TermQuery(new Term("words", word)), BooleanClause.Occur.SHOULD);
    }
    return query.build();
  }

  private static double cpuSeconds() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
  }

  private static long peakMemory() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmHWM:")) {
        return Long.parseLong(line.replaceAll("\\D", "")) << 10;
      }
    }
    throw new IOException("/proc/self/status has no VmHWM");
  }
}
