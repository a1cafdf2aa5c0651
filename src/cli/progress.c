/*
 * progress.c - training as a person watches it; see progress.h.
 */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

enum { EXPERTS_TEXT = 64 };

void progress_init(struct progress *p, int64_t steps, bool quiet)
{
    *p = (struct progress){
        .quiet = quiet, .terminal = cli_terminal(STDERR_FILENO), .steps = steps, .shown = -1};
}

void progress_clear(struct progress *p)
{
    if (p->drawn) fputs("\r\x1b[K", stderr);
    p->drawn = false;
}

__attribute__((format(printf, 2, 3))) static void say(struct progress *p, const char *format, ...)
{
    progress_clear(p);
    va_list ap;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* A line that is wider than the terminal would wrap, and could then not be erased. */
static void draw(struct progress *p, const char *line)
{
    struct winsize w = {0};
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : 79;
    fprintf(stderr, "\r%.*s\x1b[K", columns, line);
    fflush(stderr);
    p->drawn = true;
}

/* A terminal is updated five times a second. A log gets a line every ten seconds at first and ever
 * fewer later, so that a day of training fits on a few pages. */
static bool is_due(const struct progress *p, const struct heed_event *e)
{
    double wait = p->terminal ? 0.2 : 10 + e->seconds / 100;
    return p->shown < 0 || e->seconds - p->shown >= wait || e->step == p->steps;
}

/* "  experts 9-16%, 1.2% dropped": the least and the most chosen expert of all layers, and what
 * they all dropped */
static const char *show_experts(char out[EXPERTS_TEXT], const struct heed_event *e)
{
    double least = 1, most = 0, dropped = 0;
    out[0] = '\0';
    if (!e->expert) return out;
    for (int i = 0; i < e->layers * e->experts; i++) {
        const struct heed_expert *x = &e->expert[i];
        least = x->share < least ? x->share : least;
        most = x->share > most ? x->share : most;
        dropped += x->share * x->dropped / e->layers;
    }
    snprintf(out, EXPERTS_TEXT, "  experts %.0f-%.0f%%, %.1f%% dropped", 100 * least, 100 * most,
             100 * dropped);
    return out;
}

static void show_step(struct progress *p, const struct heed_event *e)
{
    p->loss += e->loss;
    p->n++;
    if (!is_due(p, e)) return;
    char step[CLI_NUMBER_MAX], steps[CLI_NUMBER_MAX], speed[CLI_NUMBER_MAX], left[CLI_NUMBER_MAX];
    char line[256], experts[EXPERTS_TEXT];
    snprintf(line, sizeof line, "step %s/%s  epoch %lld  loss %.4f  lr %.3g  %s tok/s  %s left%s",
             cli_count(step, e->step), cli_count(steps, p->steps), (long long)e->epoch,
             p->loss / p->n, e->lr, cli_count(speed, (int64_t)e->tokens_s),
             cli_duration(left, e->seconds_to_go), show_experts(experts, e));
    if (p->terminal) {
        draw(p, line);
    } else {
        say(p, "%s", line);
    }
    p->shown = e->seconds;
    p->loss = 0;
    p->n = 0;
}

/* Text that is searched in a second or two needs no line. */
static void show_indexed(struct progress *p, const struct heed_event *e)
{
    char line[64];
    double wait = p->terminal ? 0.2 : 10;
    double since = p->shown < 0 ? e->seconds - 1 : e->seconds - p->shown;
    if (since < wait) return;
    snprintf(line, sizeof line, "searching the text for its lines: %.0f%%", 100 * e->indexed);
    if (p->terminal) {
        draw(p, line);
    } else {
        say(p, "%s", line);
    }
    p->shown = e->seconds;
}

static void show_validation(struct progress *p, const struct heed_event *e)
{
    char step[CLI_NUMBER_MAX], scores[2 * CLI_NUMBER_MAX] = "";
    if (e->bleu >= 0) snprintf(scores, sizeof scores, "  BLEU %.2f  chrF %.2f", e->bleu, e->chrf);
    say(p, "step %s: validation  nll %.4f  perplexity %.2f%s%s", cli_count(step, e->step), e->nll,
        e->perplexity, scores, e->best ? "  best so far" : "");
}

/* Files of the training text, where there are several: how often each was read. */
static void show_read(struct progress *p, const struct heed_event *e, bool all)
{
    char pairs[CLI_NUMBER_MAX];
    for (int i = 0; i < e->reads && (e->reads > 1 || all); i++) {
        const struct heed_read *r = &e->read[i];
        bool weighted = r->weight < 0.9995 || r->weight > 1.0005;
        char weight[32] = "", read[32] = "";
        if (weighted) snprintf(weight, sizeof weight, ", weight %.3g", r->weight);
        if (r->times >= 1)
            snprintf(read, sizeof read, ", read %.3g times", r->times);
        else if (r->times > 0)
            snprintf(read, sizeof read, ", %.2g%% read", 100 * r->times);
        say(p, "%s: %s pairs%s%s", r->file, cli_count(pairs, r->pairs), weight, read);
    }
}

void progress_event(struct progress *p, const struct heed_event *e, bool stop)
{
    if (p->quiet) return;
    char step[CLI_NUMBER_MAX], time[CLI_NUMBER_MAX];
    cli_count(step, e->step);
    switch (e->kind) {
    case HEED_EVENT_INDEX:
        show_indexed(p, e);
        break;
    case HEED_EVENT_START:
        p->shown = -1;
        if (e->text) say(p, "%s", e->text);
        show_read(p, e, false);
        break;
    case HEED_EVENT_STEP:
        show_step(p, e);
        break;
    case HEED_EVENT_SKIP:
        say(p, "step %s: %s", step, e->text ? e->text : "skipped, its gradient is not usable");
        break;
    case HEED_EVENT_ROLLBACK:
        say(p, "step %s: %s", step, e->text ? e->text : "back to the last good checkpoint");
        break;
    case HEED_EVENT_VALID:
        show_validation(p, e);
        break;
    case HEED_EVENT_SAVE:
        say(p, "step %s: %s", step, e->text ? e->text : "saved");
        break;
    case HEED_EVENT_DONE:
        if (p->drawn) fputc('\n', stderr); /* the last step stays to be read */
        p->drawn = false;
        say(p, "%s%s%s step%s, %s in this run", e->text ? e->text : "", e->text ? ": " : "", step,
            e->step == 1 ? "" : "s", cli_duration(time, e->seconds));
        show_read(p, e, true);
        break;
    }
    if (stop && !p->stopping) {
        p->stopping = true;
        if (e->kind != HEED_EVENT_DONE)
            say(p, "stopping; Ctrl-C again, a second later, quits without saving");
    }
}
