/*
 * request.c - what a request asks for; see request.h.
 */
#include "decode/request.h"

#include "base/error.h"

struct heed_translate_options heed_translate_defaults(void)
{
    return (struct heed_translate_options){.beam = 4, .nbest = 1, .length_penalty = 0.6f};
}

static enum heed_status check_lengths(const struct heed_translate_options *o, int longest,
                                      struct heed_error *err)
{
    if (o->max_length < 0 || o->no_repeat_ngram < 0)
        return error_set(err, HEED_EARG,
                         "max length and no-repeat n-gram are %d and %d, expected at least 0",
                         o->max_length, o->no_repeat_ngram);
    int most = o->max_length && o->max_length < longest ? o->max_length : longest;
    if (o->min_length < 0 || o->min_length >= most)
        return error_set(err, HEED_EARG,
                         "min length is %d, expected at least 0 and less than the max length of %d",
                         o->min_length, most);
    return HEED_OK;
}

static enum heed_status check_options(const struct heed_translate_options *o, int longest,
                                      struct heed_error *err)
{
    if (o->beam < 1 || o->beam > BEAM_MAX)
        return error_set(err, HEED_EARG, "beam is %d, expected 1 to %d", o->beam, BEAM_MAX);
    if (o->nbest < 1 || o->nbest > o->beam)
        return error_set(err, HEED_EARG, "nbest is %d, expected 1 to the beam of %d", o->nbest,
                         o->beam);
    if (!(o->length_penalty >= 0 && o->length_penalty <= 10))
        return error_set(err, HEED_EARG, "length penalty is %g, expected 0 to 10",
                         (double)o->length_penalty);
    if (!(o->temperature >= 0 && o->temperature <= 100) || o->top_k < 0 ||
        o->top_k > BEAM_SAMPLED || !(o->top_p >= 0 && o->top_p <= 1))
        return error_set(err, HEED_EARG,
                         "temperature, top-k and top-p are %g, %d and %g, expected 0 to 100, 0 to "
                         "%d and 0 to 1",
                         (double)o->temperature, o->top_k, (double)o->top_p, BEAM_SAMPLED);
    return check_lengths(o, longest, err);
}

static enum heed_status check_phrases(const struct heed_request *r, struct heed_error *err)
{
    if (r->required_n < 0 || r->required_n > BEAM_REQUIRED || r->banned_n < 0 ||
        r->banned_n > BEAM_BANNED)
        return error_set(err, HEED_EARG,
                         "%d phrases are required and %d banned, expected 0 to %d and 0 to %d",
                         r->required_n, r->banned_n, BEAM_REQUIRED, BEAM_BANNED);
    enum heed_status status = error_strings(err, "required", r->required, r->required_n);
    return status ? status : error_strings(err, "banned", r->banned, r->banned_n);
}

enum heed_status request_check(const struct heed_request *r, const struct heed_translate_options *o,
                               int longest, struct heed_error *err)
{
    enum heed_status status = check_options(o, longest, err);
    if (!status) status = check_phrases(r, err);
    if (status) return status;
    if (r->given && (r->prefix || r->required_n || r->banned_n))
        return error_set(err, HEED_EARG,
                         "a translation is given, which is scored as it is: there can be no "
                         "prefix, no required and no banned phrase");
    if (r->required_n && o->temperature > 0)
        return error_set(err, HEED_EARG,
                         "temperature is %g, expected 0: sampling finds no required phrases",
                         (double)o->temperature);
    return HEED_OK;
}

struct beam_options request_beam(const struct heed_request *r,
                                 const struct heed_translate_options *o)
{
    if (r->given)
        return (struct beam_options){
            .width = 1, .nbest = 1, .length_penalty = o->length_penalty, .trace = o->trace};
    return (struct beam_options){.width = o->beam,
                                 .nbest = o->nbest,
                                 .length_penalty = o->length_penalty,
                                 .min_length = o->min_length,
                                 .no_repeat = o->no_repeat_ngram,
                                 .temperature = o->temperature,
                                 .top_k = o->top_k,
                                 .top_p = o->top_p,
                                 .seed = o->seed,
                                 .trace = o->trace};
}
